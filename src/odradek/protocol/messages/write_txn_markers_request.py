"""WriteTxnMarkersRequest: generated from definitions/api/WriteTxnMarkersRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class WritableTxnMarkerTopic:
    name: str = ""  # versions 0+, topicName
    partition_indexes: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class WritableTxnMarker:
    producer_id: int = 0  # versions 0+, producerId
    producer_epoch: int = 0  # versions 0+
    transaction_result: bool = False  # versions 0+
    topics: list[WritableTxnMarkerTopic] = field(default_factory=list)  # versions 0+
    coordinator_epoch: int = 0  # versions 0+
    transaction_version: int = 0  # versions 2+


@dataclass(slots=True)
class WriteTxnMarkersRequest:
    SPEC: ClassVar[str] = "api/WriteTxnMarkersRequest"
    API_KEY: ClassVar[int] = 27
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 1

    markers: list[WritableTxnMarker] = field(default_factory=list)  # versions 0+
