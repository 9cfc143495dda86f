"""DescribeTopicPartitionsResponse: generated from definitions/api/DescribeTopicPartitionsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class DescribeTopicPartitionsResponsePartition:
    error_code: int = 0  # versions 0+
    partition_index: int = 0  # versions 0+
    leader_id: int = 0  # versions 0+, brokerId
    leader_epoch: int = -1  # versions 0+
    replica_nodes: list[int] = field(default_factory=list)  # versions 0+, brokerId
    isr_nodes: list[int] = field(default_factory=list)  # versions 0+, brokerId
    eligible_leader_replicas: list[int] | None = None  # versions 0+, nullable 0+, brokerId
    last_known_elr: list[int] | None = None  # versions 0+, nullable 0+, brokerId
    offline_replicas: list[int] = field(default_factory=list)  # versions 0+, brokerId


@dataclass(slots=True)
class DescribeTopicPartitionsResponseTopic:
    error_code: int = 0  # versions 0+
    name: str | None = ""  # versions 0+, nullable 0+, topicName
    topic_id: Uuid = ZERO_UUID  # versions 0+
    is_internal: bool = False  # versions 0+
    # versions 0+
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648  # versions 0+


@dataclass(slots=True)
class Cursor:
    topic_name: str = ""  # versions 0+, topicName
    partition_index: int = 0  # versions 0+


@dataclass(slots=True)
class DescribeTopicPartitionsResponse:
    SPEC: ClassVar[str] = "api/DescribeTopicPartitionsResponse"
    API_KEY: ClassVar[int] = 75
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)  # versions 0+
    next_cursor: Cursor | None = None  # versions 0+, nullable 0+
