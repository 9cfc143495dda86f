"""BeginQuorumEpochResponse: generated from definitions/api/BeginQuorumEpochResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    leader_id: int = 0  # versions 0+, brokerId
    leader_epoch: int = 0  # versions 0+


@dataclass(slots=True)
class TopicData:
    topic_name: str = ""  # versions 0+, topicName
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = 0  # versions 1+, brokerId
    host: str = ""  # versions 1+
    port: int = 0  # versions 1+


@dataclass(slots=True)
class BeginQuorumEpochResponse:
    SPEC: ClassVar[str] = "api/BeginQuorumEpochResponse"
    API_KEY: ClassVar[int] = 53
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    error_code: int = 0  # versions 0+
    topics: list[TopicData] = field(default_factory=list)  # versions 0+
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # versions 1+, tag 0
