"""DrainBrokerResponse: generated from definitions/odradek/DrainBrokerResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class RemainingTopic:
    topic: str = ""  # versions 0+, topicName
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DrainBrokerResponse:
    SPEC: ClassVar[str] = "odradek/DrainBrokerResponse"
    API_KEY: ClassVar[int] = 20003
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    remaining: list[RemainingTopic] = field(default_factory=list)  # versions 0+
