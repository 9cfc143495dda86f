"""OffsetCommitRequest: generated from definitions/api/OffsetCommitRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class OffsetCommitRequestPartition:
    partition_index: int = 0  # versions 0+
    committed_offset: int = 0  # versions 0+
    committed_leader_epoch: int = -1  # versions 6+
    committed_metadata: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class OffsetCommitRequestTopic:
    name: str = ""  # versions 0-9, topicName
    topic_id: Uuid = ZERO_UUID  # versions 10+
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class OffsetCommitRequest:
    SPEC: ClassVar[str] = "api/OffsetCommitRequest"
    API_KEY: ClassVar[int] = 8
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 8

    group_id: str = ""  # versions 0+, groupId
    generation_id_or_member_epoch: int = -1  # versions 1+
    member_id: str = ""  # versions 1+
    group_instance_id: str | None = None  # versions 7+, nullable 7+
    retention_time_ms: int = -1  # versions 2-4
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)  # versions 0+
