"""DeleteTopicsResponse: generated from definitions/api/DeleteTopicsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class DeletableTopicResult:
    name: str | None = ""  # versions 0+, nullable 6+, topicName
    topic_id: Uuid = ZERO_UUID  # versions 6+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 5+, nullable 5+


@dataclass(slots=True)
class DeleteTopicsResponse:
    SPEC: ClassVar[str] = "api/DeleteTopicsResponse"
    API_KEY: ClassVar[int] = 20
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0  # versions 1+
    responses: list[DeletableTopicResult] = field(default_factory=list)  # versions 0+
