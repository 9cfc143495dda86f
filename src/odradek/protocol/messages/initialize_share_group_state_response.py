"""InitializeShareGroupStateResponse: generated from definitions/api/InitializeShareGroupStateResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class PartitionResult:
    partition: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+


@dataclass(slots=True)
class InitializeStateResult:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[PartitionResult] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class InitializeShareGroupStateResponse:
    SPEC: ClassVar[str] = "api/InitializeShareGroupStateResponse"
    API_KEY: ClassVar[int] = 83
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    results: list[InitializeStateResult] = field(default_factory=list)  # versions 0+
