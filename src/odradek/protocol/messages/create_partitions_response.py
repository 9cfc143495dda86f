"""CreatePartitionsResponse: generated from definitions/api/CreatePartitionsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class CreatePartitionsTopicResult:
    name: str = ""  # versions 0+, topicName
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+


@dataclass(slots=True)
class CreatePartitionsResponse:
    SPEC: ClassVar[str] = "api/CreatePartitionsResponse"
    API_KEY: ClassVar[int] = 37
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0  # versions 0+
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)  # versions 0+
