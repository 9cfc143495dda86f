"""CreatePartitionsRequest: generated from definitions/api/CreatePartitionsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class CreatePartitionsAssignment:
    broker_ids: list[int] = field(default_factory=list)  # versions 0+, brokerId


@dataclass(slots=True)
class CreatePartitionsTopic:
    name: str = ""  # versions 0+, topicName
    count: int = 0  # versions 0+
    # versions 0+, nullable 0+
    assignments: list[CreatePartitionsAssignment] | None = field(default_factory=list)


@dataclass(slots=True)
class CreatePartitionsRequest:
    SPEC: ClassVar[str] = "api/CreatePartitionsRequest"
    API_KEY: ClassVar[int] = 37
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    topics: list[CreatePartitionsTopic] = field(default_factory=list)  # versions 0+
    timeout_ms: int = 0  # versions 0+
    validate_only: bool = False  # versions 0+
