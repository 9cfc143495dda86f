"""LegacyOffsetCommitValue: generated from definitions/group/LegacyOffsetCommitValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class LegacyOffsetCommitValue:
    SPEC: ClassVar[str] = "group/LegacyOffsetCommitValue"
    API_KEY: ClassVar[int] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    offset: int = 0  # versions 0
    metadata: str = ""  # versions 0
    commit_timestamp: int = 0  # versions 0
