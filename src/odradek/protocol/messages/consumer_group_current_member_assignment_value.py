"""ConsumerGroupCurrentMemberAssignmentValue: generated from definitions/group/ConsumerGroupCurrentMemberAssignmentValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class TopicPartitions:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    SPEC: ClassVar[str] = "group/ConsumerGroupCurrentMemberAssignmentValue"
    API_KEY: ClassVar[int] = 8
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    member_epoch: int = 0  # versions 0+
    previous_member_epoch: int = 0  # versions 0+
    state: int = 0  # versions 0+
    assigned_partitions: list[TopicPartitions] = field(default_factory=list)  # versions 0+
    # versions 0+
    partitions_pending_revocation: list[TopicPartitions] = field(default_factory=list)
