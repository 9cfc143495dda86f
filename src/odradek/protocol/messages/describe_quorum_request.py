"""DescribeQuorumRequest: generated from definitions/api/DescribeQuorumRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0  # versions 0+


@dataclass(slots=True)
class TopicData:
    topic_name: str = ""  # versions 0+, topicName
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeQuorumRequest:
    SPEC: ClassVar[str] = "api/DescribeQuorumRequest"
    API_KEY: ClassVar[int] = 55
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    topics: list[TopicData] = field(default_factory=list)  # versions 0+
