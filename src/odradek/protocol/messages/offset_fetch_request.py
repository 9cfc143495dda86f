"""OffsetFetchRequest: generated from definitions/api/OffsetFetchRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class OffsetFetchRequestTopic:
    name: str = ""  # versions 0-7, topicName
    partition_indexes: list[int] = field(default_factory=list)  # versions 0-7


@dataclass(slots=True)
class OffsetFetchRequestTopics:
    name: str = ""  # versions 8-9, topicName
    topic_id: Uuid = ZERO_UUID  # versions 10+
    partition_indexes: list[int] = field(default_factory=list)  # versions 8+


@dataclass(slots=True)
class OffsetFetchRequestGroup:
    group_id: str = ""  # versions 8+, groupId
    member_id: str | None = None  # versions 9+, nullable 9+
    member_epoch: int = -1  # versions 9+
    # versions 8+, nullable 8+
    topics: list[OffsetFetchRequestTopics] | None = field(default_factory=list)


@dataclass(slots=True)
class OffsetFetchRequest:
    SPEC: ClassVar[str] = "api/OffsetFetchRequest"
    API_KEY: ClassVar[int] = 9
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 6

    group_id: str = ""  # versions 0-7, groupId
    # versions 0-7, nullable 2-7
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list)
    groups: list[OffsetFetchRequestGroup] = field(default_factory=list)  # versions 8+
    require_stable: bool = False  # versions 7+
