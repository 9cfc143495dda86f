"""DeleteTopicsRequest: generated from definitions/api/DeleteTopicsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class DeleteTopicState:
    name: str | None = None  # versions 6+, nullable 6+, topicName
    topic_id: Uuid = ZERO_UUID  # versions 6+


@dataclass(slots=True)
class DeleteTopicsRequest:
    SPEC: ClassVar[str] = "api/DeleteTopicsRequest"
    API_KEY: ClassVar[int] = 20
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 4

    topics: list[DeleteTopicState] = field(default_factory=list)  # versions 6+
    topic_names: list[str] = field(default_factory=list)  # versions 0-5, topicName
    timeout_ms: int = 0  # versions 0+
