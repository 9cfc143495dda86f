"""FetchSnapshotResponse: generated from definitions/api/FetchSnapshotResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.protocol.wire import Chunk


@dataclass(slots=True)
class SnapshotId:
    end_offset: int = 0  # versions 0+
    epoch: int = 0  # versions 0+


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = 0  # versions 0+, brokerId
    leader_epoch: int = 0  # versions 0+


@dataclass(slots=True)
class PartitionSnapshot:
    index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)  # versions 0+
    current_leader: LeaderIdAndEpoch | None = None  # versions 0+, tag 0
    size: int = 0  # versions 0+
    position: int = 0  # versions 0+
    unaligned_records: Chunk | None = None  # versions 0+


@dataclass(slots=True)
class TopicSnapshot:
    name: str = ""  # versions 0+, topicName
    partitions: list[PartitionSnapshot] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = 0  # versions 1+, brokerId
    host: str = ""  # versions 1+
    port: int = 0  # versions 1+


@dataclass(slots=True)
class FetchSnapshotResponse:
    SPEC: ClassVar[str] = "api/FetchSnapshotResponse"
    API_KEY: ClassVar[int] = 59
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    topics: list[TopicSnapshot] = field(default_factory=list)  # versions 0+
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # versions 1+, tag 0
