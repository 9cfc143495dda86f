"""ShareGroupStatePartitionMetadataValue: generated from definitions/group/ShareGroupStatePartitionMetadataValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class TopicPartitionsInfo:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    topic_name: str = ""  # versions 0+
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class TopicInfo:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    topic_name: str = ""  # versions 0+


@dataclass(slots=True)
class ShareGroupStatePartitionMetadataValue:
    SPEC: ClassVar[str] = "group/ShareGroupStatePartitionMetadataValue"
    API_KEY: ClassVar[int] = 15
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    initializing_topics: list[TopicPartitionsInfo] = field(default_factory=list)  # versions 0+
    initialized_topics: list[TopicPartitionsInfo] = field(default_factory=list)  # versions 0+
    deleting_topics: list[TopicInfo] = field(default_factory=list)  # versions 0+
