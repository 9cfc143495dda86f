"""ShareGroupTargetAssignmentMemberValue: generated from definitions/group/ShareGroupTargetAssignmentMemberValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class TopicPartition:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ShareGroupTargetAssignmentMemberValue:
    SPEC: ClassVar[str] = "group/ShareGroupTargetAssignmentMemberValue"
    API_KEY: ClassVar[int] = 13
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    topic_partitions: list[TopicPartition] = field(default_factory=list)  # versions 0+
