"""OffsetCommitValue: generated from definitions/group/OffsetCommitValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class OffsetCommitValue:
    SPEC: ClassVar[str] = "group/OffsetCommitValue"
    API_KEY: ClassVar[int] = 1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    offset: int = 0  # versions 0+
    leader_epoch: int = -1  # versions 3+
    metadata: str = ""  # versions 0+
    commit_timestamp: int = 0  # versions 0+
    expire_timestamp: int = -1  # versions 1
    topic_id: Uuid = ZERO_UUID  # versions 4+, tag 0
