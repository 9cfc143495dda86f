"""OffsetDeleteRequest: generated from definitions/api/OffsetDeleteRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class OffsetDeleteRequestPartition:
    partition_index: int = 0  # versions 0+


@dataclass(slots=True)
class OffsetDeleteRequestTopic:
    name: str = ""  # versions 0+, topicName
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class OffsetDeleteRequest:
    SPEC: ClassVar[str] = "api/OffsetDeleteRequest"
    API_KEY: ClassVar[int] = 47
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group_id: str = ""  # versions 0+, groupId
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)  # versions 0+
