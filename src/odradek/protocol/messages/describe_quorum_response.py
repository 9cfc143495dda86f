"""DescribeQuorumResponse: generated from definitions/api/DescribeQuorumResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class ReplicaState:
    replica_id: int = 0  # versions 0+, brokerId
    replica_directory_id: Uuid = ZERO_UUID  # versions 2+
    log_end_offset: int = 0  # versions 0+
    last_fetch_timestamp: int = -1  # versions 1+
    last_caught_up_timestamp: int = -1  # versions 1+


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 2+, nullable 2+
    leader_id: int = 0  # versions 0+, brokerId
    leader_epoch: int = 0  # versions 0+
    high_watermark: int = 0  # versions 0+
    current_voters: list[ReplicaState] = field(default_factory=list)  # versions 0+
    observers: list[ReplicaState] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class TopicData:
    topic_name: str = ""  # versions 0+, topicName
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Listener:
    name: str = ""  # versions 2+
    host: str = ""  # versions 2+
    port: int = 0  # versions 2+


@dataclass(slots=True)
class Node:
    node_id: int = 0  # versions 2+, brokerId
    listeners: list[Listener] = field(default_factory=list)  # versions 2+


@dataclass(slots=True)
class DescribeQuorumResponse:
    SPEC: ClassVar[str] = "api/DescribeQuorumResponse"
    API_KEY: ClassVar[int] = 55
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 2+, nullable 2+
    topics: list[TopicData] = field(default_factory=list)  # versions 0+
    nodes: list[Node] = field(default_factory=list)  # versions 2+
