"""ListOffsetsRequest: generated from definitions/api/ListOffsetsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ListOffsetsPartition:
    partition_index: int = 0  # versions 0+
    current_leader_epoch: int = -1  # versions 4+
    timestamp: int = 0  # versions 0+


@dataclass(slots=True)
class ListOffsetsTopic:
    name: str = ""  # versions 0+, topicName
    partitions: list[ListOffsetsPartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ListOffsetsRequest:
    SPEC: ClassVar[str] = "api/ListOffsetsRequest"
    API_KEY: ClassVar[int] = 2
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 6

    replica_id: int = 0  # versions 0+, brokerId
    isolation_level: int = 0  # versions 2+
    topics: list[ListOffsetsTopic] = field(default_factory=list)  # versions 0+
    timeout_ms: int = 0  # versions 10+
