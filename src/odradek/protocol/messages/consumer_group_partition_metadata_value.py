"""ConsumerGroupPartitionMetadataValue: generated from definitions/group/ConsumerGroupPartitionMetadataValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class PartitionMetadata:
    partition: int = 0  # versions 0+
    racks: list[str] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class TopicMetadata:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    topic_name: str = ""  # versions 0+
    num_partitions: int = 0  # versions 0+
    partition_metadata: list[PartitionMetadata] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ConsumerGroupPartitionMetadataValue:
    SPEC: ClassVar[str] = "group/ConsumerGroupPartitionMetadataValue"
    API_KEY: ClassVar[int] = 4
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    topics: list[TopicMetadata] = field(default_factory=list)  # versions 0+
