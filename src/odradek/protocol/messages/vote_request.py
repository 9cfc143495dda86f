"""VoteRequest: generated from definitions/api/VoteRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0  # versions 0+
    replica_epoch: int = 0  # versions 0+
    replica_id: int = 0  # versions 0+, brokerId
    replica_directory_id: Uuid = ZERO_UUID  # versions 1+
    voter_directory_id: Uuid = ZERO_UUID  # versions 1+
    last_offset_epoch: int = 0  # versions 0+
    last_offset: int = 0  # versions 0+
    pre_vote: bool = False  # versions 2+


@dataclass(slots=True)
class TopicData:
    topic_name: str = ""  # versions 0+, topicName
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class VoteRequest:
    SPEC: ClassVar[str] = "api/VoteRequest"
    API_KEY: ClassVar[int] = 52
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    cluster_id: str | None = None  # versions 0+, nullable 0+
    voter_id: int = -1  # versions 1+, brokerId
    topics: list[TopicData] = field(default_factory=list)  # versions 0+
