"""DeleteRecordsRequest: generated from definitions/api/DeleteRecordsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DeleteRecordsPartition:
    partition_index: int = 0  # versions 0+
    offset: int = 0  # versions 0+


@dataclass(slots=True)
class DeleteRecordsTopic:
    name: str = ""  # versions 0+, topicName
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DeleteRecordsRequest:
    SPEC: ClassVar[str] = "api/DeleteRecordsRequest"
    API_KEY: ClassVar[int] = 21
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    topics: list[DeleteRecordsTopic] = field(default_factory=list)  # versions 0+
    timeout_ms: int = 0  # versions 0+
