"""AlterShareGroupOffsetsResponse: generated from definitions/api/AlterShareGroupOffsetsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+


@dataclass(slots=True)
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = ""  # versions 0+, topicName
    topic_id: Uuid = ZERO_UUID  # versions 0+
    # versions 0+
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(default_factory=list)


@dataclass(slots=True)
class AlterShareGroupOffsetsResponse:
    SPEC: ClassVar[str] = "api/AlterShareGroupOffsetsResponse"
    API_KEY: ClassVar[int] = 91
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    # versions 0+
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(default_factory=list)
