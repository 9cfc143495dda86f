"""DeleteRecordsResponse: generated from definitions/api/DeleteRecordsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DeleteRecordsPartitionResult:
    partition_index: int = 0  # versions 0+
    low_watermark: int = 0  # versions 0+
    error_code: int = 0  # versions 0+


@dataclass(slots=True)
class DeleteRecordsTopicResult:
    name: str = ""  # versions 0+, topicName
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DeleteRecordsResponse:
    SPEC: ClassVar[str] = "api/DeleteRecordsResponse"
    API_KEY: ClassVar[int] = 21
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0  # versions 0+
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)  # versions 0+
