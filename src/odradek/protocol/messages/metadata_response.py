"""MetadataResponse: generated from definitions/api/MetadataResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class MetadataResponseBroker:
    node_id: int = 0  # versions 0+, brokerId
    host: str = ""  # versions 0+
    port: int = 0  # versions 0+
    rack: str | None = None  # versions 1+, nullable 1+


@dataclass(slots=True)
class MetadataResponsePartition:
    error_code: int = 0  # versions 0+
    partition_index: int = 0  # versions 0+
    leader_id: int = 0  # versions 0+, brokerId
    leader_epoch: int = -1  # versions 7+
    replica_nodes: list[int] = field(default_factory=list)  # versions 0+, brokerId
    isr_nodes: list[int] = field(default_factory=list)  # versions 0+, brokerId
    offline_replicas: list[int] = field(default_factory=list)  # versions 5+, brokerId


@dataclass(slots=True)
class MetadataResponseTopic:
    error_code: int = 0  # versions 0+
    name: str | None = ""  # versions 0+, nullable 12+, topicName
    topic_id: Uuid = ZERO_UUID  # versions 10+
    is_internal: bool = False  # versions 1+
    partitions: list[MetadataResponsePartition] = field(default_factory=list)  # versions 0+
    topic_authorized_operations: int = -2147483648  # versions 8+


@dataclass(slots=True)
class MetadataResponse:
    SPEC: ClassVar[str] = "api/MetadataResponse"
    API_KEY: ClassVar[int] = 3
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9

    throttle_time_ms: int = 0  # versions 3+
    brokers: list[MetadataResponseBroker] = field(default_factory=list)  # versions 0+
    cluster_id: str | None = None  # versions 2+, nullable 2+
    controller_id: int = -1  # versions 1+, brokerId
    topics: list[MetadataResponseTopic] = field(default_factory=list)  # versions 0+
    cluster_authorized_operations: int = -2147483648  # versions 8-10
    error_code: int = 0  # versions 13+
