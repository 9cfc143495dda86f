"""DescribeProducersResponse: generated from definitions/api/DescribeProducersResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ProducerState:
    producer_id: int = 0  # versions 0+, producerId
    producer_epoch: int = 0  # versions 0+
    last_sequence: int = -1  # versions 0+
    last_timestamp: int = -1  # versions 0+
    coordinator_epoch: int = 0  # versions 0+
    current_txn_start_offset: int = -1  # versions 0+


@dataclass(slots=True)
class PartitionResponse:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    active_producers: list[ProducerState] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class TopicResponse:
    name: str = ""  # versions 0+, topicName
    partitions: list[PartitionResponse] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeProducersResponse:
    SPEC: ClassVar[str] = "api/DescribeProducersResponse"
    API_KEY: ClassVar[int] = 61
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    topics: list[TopicResponse] = field(default_factory=list)  # versions 0+
