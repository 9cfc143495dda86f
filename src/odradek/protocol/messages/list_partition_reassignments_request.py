"""ListPartitionReassignmentsRequest: generated from definitions/api/ListPartitionReassignmentsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ListPartitionReassignmentsTopics:
    name: str = ""  # versions 0+, topicName
    partition_indexes: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ListPartitionReassignmentsRequest:
    SPEC: ClassVar[str] = "api/ListPartitionReassignmentsRequest"
    API_KEY: ClassVar[int] = 46
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    timeout_ms: int = 60000  # versions 0+
    topics: list[ListPartitionReassignmentsTopics] | None = None  # versions 0+, nullable 0+
