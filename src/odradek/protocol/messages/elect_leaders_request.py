"""ElectLeadersRequest: generated from definitions/api/ElectLeadersRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TopicPartitions:
    topic: str = ""  # versions 0+, topicName
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ElectLeadersRequest:
    SPEC: ClassVar[str] = "api/ElectLeadersRequest"
    API_KEY: ClassVar[int] = 43
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    election_type: int = 0  # versions 1+
    # versions 0+, nullable 0+
    topic_partitions: list[TopicPartitions] | None = field(default_factory=list)
    timeout_ms: int = 60000  # versions 0+
