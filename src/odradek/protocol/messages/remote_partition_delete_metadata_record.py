"""RemotePartitionDeleteMetadataRecord: generated from definitions/storage/RemotePartitionDeleteMetadataRecord.json, do not edit."""

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
class RemotePartitionDeleteMetadataRecord:
    SPEC: ClassVar[str] = "storage/RemotePartitionDeleteMetadataRecord"
    API_KEY: ClassVar[int] = 2
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    # versions 0+
    topic_id_partition: TopicIdPartitionEntry = field(default_factory=TopicIdPartitionEntry)
    broker_id: int = 0  # versions 0+
    event_timestamp_ms: int = 0  # versions 0+
    remote_partition_delete_state: int = 0  # versions 0+
