"""AlterShareGroupOffsetsRequest: generated from definitions/api/AlterShareGroupOffsetsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = 0  # versions 0+
    start_offset: int = 0  # versions 0+


@dataclass(slots=True)
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = ""  # versions 0+, topicName
    # versions 0+
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(default_factory=list)


@dataclass(slots=True)
class AlterShareGroupOffsetsRequest:
    SPEC: ClassVar[str] = "api/AlterShareGroupOffsetsRequest"
    API_KEY: ClassVar[int] = 91
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_id: str = ""  # versions 0+, groupId
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(default_factory=list)  # versions 0+
