"""ProduceResponse: generated from definitions/api/ProduceResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class BatchIndexAndErrorMessage:
    batch_index: int = 0  # versions 8+
    batch_index_error_message: str | None = None  # versions 8+, nullable 8+


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = -1  # versions 10+, brokerId
    leader_epoch: int = -1  # versions 10+


@dataclass(slots=True)
class PartitionProduceResponse:
    index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    base_offset: int = 0  # versions 0+
    log_append_time_ms: int = -1  # versions 2+
    log_start_offset: int = -1  # versions 5+
    record_errors: list[BatchIndexAndErrorMessage] = field(default_factory=list)  # versions 8+
    error_message: str | None = None  # versions 8+, nullable 8+
    current_leader: LeaderIdAndEpoch | None = None  # versions 10+, tag 0


@dataclass(slots=True)
class TopicProduceResponse:
    name: str = ""  # versions 0-12, topicName
    topic_id: Uuid = ZERO_UUID  # versions 13+
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = 0  # versions 10+, brokerId
    host: str = ""  # versions 10+
    port: int = 0  # versions 10+
    rack: str | None = None  # versions 10+, nullable 10+


@dataclass(slots=True)
class ProduceResponse:
    SPEC: ClassVar[str] = "api/ProduceResponse"
    API_KEY: ClassVar[int] = 0
    MIN_VERSION: ClassVar[int] = 3
    MAX_VERSION: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9

    responses: list[TopicProduceResponse] = field(default_factory=list)  # versions 0+
    throttle_time_ms: int = 0  # versions 1+
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # versions 10+, tag 0
