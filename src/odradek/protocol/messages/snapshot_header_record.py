"""SnapshotHeaderRecord: generated from definitions/api/SnapshotHeaderRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class SnapshotHeaderRecord:
    SPEC: ClassVar[str] = "api/SnapshotHeaderRecord"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    version: int = 0  # versions 0+
    last_contained_log_timestamp: int = 0  # versions 0+
