"""OffsetForLeaderEpochResponse: generated from definitions/api/OffsetForLeaderEpochResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class EpochEndOffset:
    error_code: int = 0  # versions 0+
    partition: int = 0  # versions 0+
    leader_epoch: int = -1  # versions 1+
    end_offset: int = -1  # versions 0+


@dataclass(slots=True)
class OffsetForLeaderTopicResult:
    topic: str = ""  # versions 0+, topicName
    partitions: list[EpochEndOffset] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class OffsetForLeaderEpochResponse:
    SPEC: ClassVar[str] = "api/OffsetForLeaderEpochResponse"
    API_KEY: ClassVar[int] = 23
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0  # versions 2+
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)  # versions 0+
