"""ReadShareGroupStateSummaryResponse: generated from definitions/api/ReadShareGroupStateSummaryResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class PartitionResult:
    partition: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    state_epoch: int = 0  # versions 0+
    leader_epoch: int = 0  # versions 0+
    start_offset: int = 0  # versions 0+


@dataclass(slots=True)
class ReadStateSummaryResult:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[PartitionResult] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ReadShareGroupStateSummaryResponse:
    SPEC: ClassVar[str] = "api/ReadShareGroupStateSummaryResponse"
    API_KEY: ClassVar[int] = 87
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    results: list[ReadStateSummaryResult] = field(default_factory=list)  # versions 0+
