"""ListOffsetsResponse: generated from definitions/api/ListOffsetsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ListOffsetsPartitionResponse:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    timestamp: int = -1  # versions 1+
    offset: int = -1  # versions 1+
    leader_epoch: int = -1  # versions 4+


@dataclass(slots=True)
class ListOffsetsTopicResponse:
    name: str = ""  # versions 0+, topicName
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ListOffsetsResponse:
    SPEC: ClassVar[str] = "api/ListOffsetsResponse"
    API_KEY: ClassVar[int] = 2
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 6

    throttle_time_ms: int = 0  # versions 2+
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)  # versions 0+
