"""DeleteShareGroupOffsetsResponse: generated from definitions/api/DeleteShareGroupOffsetsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = ""  # versions 0+, topicName
    topic_id: Uuid = ZERO_UUID  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+


@dataclass(slots=True)
class DeleteShareGroupOffsetsResponse:
    SPEC: ClassVar[str] = "api/DeleteShareGroupOffsetsResponse"
    API_KEY: ClassVar[int] = 92
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    # versions 0+
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(default_factory=list)
