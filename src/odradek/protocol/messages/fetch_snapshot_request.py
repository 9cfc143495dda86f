"""FetchSnapshotRequest: generated from definitions/api/FetchSnapshotRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class SnapshotId:
    end_offset: int = 0  # versions 0+
    epoch: int = 0  # versions 0+


@dataclass(slots=True)
class PartitionSnapshot:
    partition: int = 0  # versions 0+
    current_leader_epoch: int = 0  # versions 0+
    snapshot_id: SnapshotId = field(default_factory=SnapshotId)  # versions 0+
    position: int = 0  # versions 0+
    replica_directory_id: Uuid = ZERO_UUID  # versions 1+, tag 0


@dataclass(slots=True)
class TopicSnapshot:
    name: str = ""  # versions 0+, topicName
    partitions: list[PartitionSnapshot] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class FetchSnapshotRequest:
    SPEC: ClassVar[str] = "api/FetchSnapshotRequest"
    API_KEY: ClassVar[int] = 59
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    cluster_id: str | None = None  # versions 0+, nullable 0+, tag 0
    replica_id: int = -1  # versions 0+, brokerId
    max_bytes: int = 2147483647  # versions 0+
    topics: list[TopicSnapshot] = field(default_factory=list)  # versions 0+
