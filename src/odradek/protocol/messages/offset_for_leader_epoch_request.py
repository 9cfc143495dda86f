"""OffsetForLeaderEpochRequest: generated from definitions/api/OffsetForLeaderEpochRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class OffsetForLeaderPartition:
    partition: int = 0  # versions 0+
    current_leader_epoch: int = -1  # versions 2+
    leader_epoch: int = 0  # versions 0+


@dataclass(slots=True)
class OffsetForLeaderTopic:
    topic: str = ""  # versions 0+, topicName
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class OffsetForLeaderEpochRequest:
    SPEC: ClassVar[str] = "api/OffsetForLeaderEpochRequest"
    API_KEY: ClassVar[int] = 23
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    replica_id: int = -2  # versions 3+, brokerId
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)  # versions 0+
