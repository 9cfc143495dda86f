"""ShareAcknowledgeResponse: generated from definitions/api/ShareAcknowledgeResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = 0  # versions 0+
    leader_epoch: int = 0  # versions 0+


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)  # versions 0+


@dataclass(slots=True)
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = 0  # versions 0+, brokerId
    host: str = ""  # versions 0+
    port: int = 0  # versions 0+
    rack: str | None = None  # versions 0+, nullable 0+


@dataclass(slots=True)
class ShareAcknowledgeResponse:
    SPEC: ClassVar[str] = "api/ShareAcknowledgeResponse"
    API_KEY: ClassVar[int] = 79
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    responses: list[ShareAcknowledgeTopicResponse] = field(default_factory=list)  # versions 0+
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # versions 0+
