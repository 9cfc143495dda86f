"""OffsetCommitResponse: generated from definitions/api/OffsetCommitResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class OffsetCommitResponsePartition:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+


@dataclass(slots=True)
class OffsetCommitResponseTopic:
    name: str = ""  # versions 0-9, topicName
    topic_id: Uuid = ZERO_UUID  # versions 10+
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class OffsetCommitResponse:
    SPEC: ClassVar[str] = "api/OffsetCommitResponse"
    API_KEY: ClassVar[int] = 8
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 10
    FLEXIBLE_FROM: ClassVar[int] = 8

    throttle_time_ms: int = 0  # versions 3+
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)  # versions 0+
