"""RemoteLogSegmentMetadataSnapshotRecord: generated from definitions/storage/RemoteLogSegmentMetadataSnapshotRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class SegmentLeaderEpochEntry:
    leader_epoch: int = 0  # versions 0+
    offset: int = 0  # versions 0+


@dataclass(slots=True)
class RemoteLogSegmentMetadataSnapshotRecord:
    SPEC: ClassVar[str] = "storage/RemoteLogSegmentMetadataSnapshotRecord"
    API_KEY: ClassVar[int] = 3
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    segment_id: Uuid = ZERO_UUID  # versions 0+
    start_offset: int = 0  # versions 0+
    end_offset: int = 0  # versions 0+
    broker_id: int = 0  # versions 0+
    max_timestamp_ms: int = 0  # versions 0+
    event_timestamp_ms: int = 0  # versions 0+
    # versions 0+
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(default_factory=list)
    segment_size_in_bytes: int = 0  # versions 0+
    custom_metadata: bytes | None = None  # versions 0+, nullable 0+
    remote_log_segment_state: int = 0  # versions 0+
    txn_index_empty: bool = False  # versions 0+, tag 0
