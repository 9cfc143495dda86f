"""WriteTxnMarkersResponse: generated from definitions/api/WriteTxnMarkersResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class WritableTxnMarkerPartitionResult:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+


@dataclass(slots=True)
class WritableTxnMarkerTopicResult:
    name: str = ""  # versions 0+, topicName
    partitions: list[WritableTxnMarkerPartitionResult] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class WritableTxnMarkerResult:
    producer_id: int = 0  # versions 0+, producerId
    topics: list[WritableTxnMarkerTopicResult] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class WriteTxnMarkersResponse:
    SPEC: ClassVar[str] = "api/WriteTxnMarkersResponse"
    API_KEY: ClassVar[int] = 27
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 1

    markers: list[WritableTxnMarkerResult] = field(default_factory=list)  # versions 0+
