"""ConsumerProtocolSubscription: generated from definitions/api/ConsumerProtocolSubscription.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TopicPartition:
    topic: str = ""  # versions 1+, topicName
    partitions: list[int] = field(default_factory=list)  # versions 1+


@dataclass(slots=True)
class ConsumerProtocolSubscription:
    SPEC: ClassVar[str] = "api/ConsumerProtocolSubscription"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 32767

    topics: list[str] = field(default_factory=list)  # versions 0+
    user_data: bytes | None = None  # versions 0+, nullable 0+
    owned_partitions: list[TopicPartition] = field(default_factory=list)  # versions 1+
    generation_id: int = -1  # versions 2+
    rack_id: str | None = None  # versions 3+, nullable 3+
