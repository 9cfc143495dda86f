"""KRaftVersionRecord: generated from definitions/api/KRaftVersionRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class KRaftVersionRecord:
    SPEC: ClassVar[str] = "api/KRaftVersionRecord"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    version: int = 0  # versions 0+
    k_raft_version: int = 0  # versions 0+
