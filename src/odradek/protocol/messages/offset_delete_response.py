"""OffsetDeleteResponse: generated from definitions/api/OffsetDeleteResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class OffsetDeleteResponsePartition:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+


@dataclass(slots=True)
class OffsetDeleteResponseTopic:
    name: str = ""  # versions 0+, topicName
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class OffsetDeleteResponse:
    SPEC: ClassVar[str] = "api/OffsetDeleteResponse"
    API_KEY: ClassVar[int] = 47
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    error_code: int = 0  # versions 0+
    throttle_time_ms: int = 0  # versions 0+
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)  # versions 0+
