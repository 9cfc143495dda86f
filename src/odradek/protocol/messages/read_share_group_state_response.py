"""ReadShareGroupStateResponse: generated from definitions/api/ReadShareGroupStateResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class StateBatch:
    first_offset: int = 0  # versions 0+
    last_offset: int = 0  # versions 0+
    delivery_state: int = 0  # versions 0+
    delivery_count: int = 0  # versions 0+


@dataclass(slots=True)
class PartitionResult:
    partition: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    state_epoch: int = 0  # versions 0+
    start_offset: int = 0  # versions 0+
    state_batches: list[StateBatch] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ReadStateResult:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[PartitionResult] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ReadShareGroupStateResponse:
    SPEC: ClassVar[str] = "api/ReadShareGroupStateResponse"
    API_KEY: ClassVar[int] = 84
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    results: list[ReadStateResult] = field(default_factory=list)  # versions 0+
