"""OffsetFetchResponse: generated from definitions/api/OffsetFetchResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class OffsetFetchResponsePartition:
    partition_index: int = 0  # versions 0-7
    committed_offset: int = 0  # versions 0-7
    committed_leader_epoch: int = -1  # versions 5-7
    metadata: str | None = ""  # versions 0-7, nullable 0-7
    error_code: int = 0  # versions 0-7


@dataclass(slots=True)
class OffsetFetchResponseTopic:
    name: str = ""  # versions 0-7, topicName
    partitions: list[OffsetFetchResponsePartition] = field(default_factory=list)  # versions 0-7


@dataclass(slots=True)
class OffsetFetchResponsePartitions:
    partition_index: int = 0  # versions 8+
    committed_offset: int = 0  # versions 8+
    committed_leader_epoch: int = -1  # versions 8+
    metadata: str | None = ""  # versions 8+, nullable 8+
    error_code: int = 0  # versions 8+


@dataclass(slots=True)
class OffsetFetchResponseTopics:
    name: str = ""  # versions 8-9, topicName
    topic_id: Uuid = ZERO_UUID  # versions 10+
    partitions: list[OffsetFetchResponsePartitions] = field(default_factory=list)  # versions 8+


@dataclass(slots=True)
class OffsetFetchResponseGroup:
    group_id: str = ""  # versions 8+, groupId
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list)  # versions 8+
    error_code: int = 0  # versions 8+


@dataclass(slots=True)
class OffsetFetchResponse:
    SPEC: ClassVar[str] = "api/OffsetFetchResponse"
    API_KEY: ClassVar[int] = 9
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 6

    throttle_time_ms: int = 0  # versions 3+
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list)  # versions 0-7
    error_code: int = 0  # versions 2-7
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list)  # versions 8+
