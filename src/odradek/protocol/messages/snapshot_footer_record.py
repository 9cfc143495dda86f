"""SnapshotFooterRecord: generated from definitions/api/SnapshotFooterRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class SnapshotFooterRecord:
    SPEC: ClassVar[str] = "api/SnapshotFooterRecord"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    version: int = 0  # versions 0+
