"""FetchResponse: generated from definitions/api/FetchResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid
from odradek.protocol.wire import Chunk


@dataclass(slots=True)
class EpochEndOffset:
    epoch: int = -1  # versions 12+
    end_offset: int = -1  # versions 12+


@dataclass(slots=True)
class LeaderIdAndEpoch:
    leader_id: int = -1  # versions 12+, brokerId
    leader_epoch: int = -1  # versions 12+


@dataclass(slots=True)
class SnapshotId:
    end_offset: int = -1  # versions 0+
    epoch: int = -1  # versions 0+


@dataclass(slots=True)
class AbortedTransaction:
    producer_id: int = 0  # versions 4+, producerId
    first_offset: int = 0  # versions 4+


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    high_watermark: int = 0  # versions 0+
    last_stable_offset: int = -1  # versions 4+
    log_start_offset: int = -1  # versions 5+
    diverging_epoch: EpochEndOffset | None = None  # versions 12+, tag 0
    current_leader: LeaderIdAndEpoch | None = None  # versions 12+, tag 1
    snapshot_id: SnapshotId | None = None  # versions 12+, tag 2
    # versions 4+, nullable 4+
    aborted_transactions: list[AbortedTransaction] | None = field(default_factory=list)
    preferred_read_replica: int = -1  # versions 11+, brokerId
    records: Chunk | None = None  # versions 0+, nullable 0+


@dataclass(slots=True)
class FetchableTopicResponse:
    topic: str = ""  # versions 0-12, topicName
    topic_id: Uuid = ZERO_UUID  # versions 13+
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class NodeEndpoint:
    node_id: int = 0  # versions 16+, brokerId
    host: str = ""  # versions 16+
    port: int = 0  # versions 16+
    rack: str | None = None  # versions 16+, nullable 16+


@dataclass(slots=True)
class FetchResponse:
    SPEC: ClassVar[str] = "api/FetchResponse"
    API_KEY: ClassVar[int] = 1
    MIN_VERSION: ClassVar[int] = 4
    MAX_VERSION: ClassVar[int] = 18
    FLEXIBLE_FROM: ClassVar[int] = 12

    throttle_time_ms: int = 0  # versions 1+
    error_code: int = 0  # versions 7+
    session_id: int = 0  # versions 7+
    responses: list[FetchableTopicResponse] = field(default_factory=list)  # versions 0+
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)  # versions 16+, tag 0
