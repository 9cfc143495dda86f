"""ConsumerProtocolAssignment: generated from definitions/api/ConsumerProtocolAssignment.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TopicPartition:
    topic: str = ""  # versions 0+, topicName
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ConsumerProtocolAssignment:
    SPEC: ClassVar[str] = "api/ConsumerProtocolAssignment"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 32767

    assigned_partitions: list[TopicPartition] = field(default_factory=list)  # versions 0+
    user_data: bytes | None = None  # versions 0+, nullable 0+
