"""RemoteLogSegmentMetadataUpdateRecord: generated from definitions/storage/RemoteLogSegmentMetadataUpdateRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class TopicIdPartitionEntry:
    name: str = ""  # versions 0+
    id: Uuid = ZERO_UUID  # versions 0+
    partition: int = 0  # versions 0+


@dataclass(slots=True)
class RemoteLogSegmentIdEntry:
    # versions 0+
    topic_id_partition: TopicIdPartitionEntry = field(default_factory=TopicIdPartitionEntry)
    id: Uuid = ZERO_UUID  # versions 0+


@dataclass(slots=True)
class RemoteLogSegmentMetadataUpdateRecord:
    SPEC: ClassVar[str] = "storage/RemoteLogSegmentMetadataUpdateRecord"
    API_KEY: ClassVar[int] = 1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    # versions 0+
    remote_log_segment_id: RemoteLogSegmentIdEntry = field(default_factory=RemoteLogSegmentIdEntry)
    broker_id: int = 0  # versions 0+
    event_timestamp_ms: int = 0  # versions 0+
    custom_metadata: bytes | None = None  # versions 0+, nullable 0+
    remote_log_segment_state: int = 0  # versions 0+
