"""EndQuorumEpochRequest: generated from definitions/api/EndQuorumEpochRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class ReplicaInfo:
    candidate_id: int = 0  # versions 1+, brokerId
    candidate_directory_id: Uuid = ZERO_UUID  # versions 1+


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0  # versions 0+
    leader_id: int = 0  # versions 0+, brokerId
    leader_epoch: int = 0  # versions 0+
    preferred_successors: list[int] = field(default_factory=list)  # versions 0
    preferred_candidates: list[ReplicaInfo] = field(default_factory=list)  # versions 1+


@dataclass(slots=True)
class TopicData:
    topic_name: str = ""  # versions 0+, topicName
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class LeaderEndpoint:
    name: str = ""  # versions 1+
    host: str = ""  # versions 1+
    port: int = 0  # versions 1+


@dataclass(slots=True)
class EndQuorumEpochRequest:
    SPEC: ClassVar[str] = "api/EndQuorumEpochRequest"
    API_KEY: ClassVar[int] = 54
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    cluster_id: str | None = None  # versions 0+, nullable 0+
    topics: list[TopicData] = field(default_factory=list)  # versions 0+
    leader_endpoints: list[LeaderEndpoint] = field(default_factory=list)  # versions 1+
