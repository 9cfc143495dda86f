"""ReadShareGroupStateSummaryRequest: generated from definitions/api/ReadShareGroupStateSummaryRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class PartitionData:
    partition: int = 0  # versions 0+
    leader_epoch: int = 0  # versions 0+


@dataclass(slots=True)
class ReadStateSummaryData:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ReadShareGroupStateSummaryRequest:
    SPEC: ClassVar[str] = "api/ReadShareGroupStateSummaryRequest"
    API_KEY: ClassVar[int] = 87
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_id: str = ""  # versions 0+
    topics: list[ReadStateSummaryData] = field(default_factory=list)  # versions 0+
