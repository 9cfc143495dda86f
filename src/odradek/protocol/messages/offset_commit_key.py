"""OffsetCommitKey: generated from definitions/group/OffsetCommitKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class OffsetCommitKey:
    SPEC: ClassVar[str] = "group/OffsetCommitKey"
    API_KEY: ClassVar[int] = 1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group: str = ""  # versions 0
    topic: str = ""  # versions 0
    partition: int = 0  # versions 0
