"""ListPartitionReassignmentsResponse: generated from definitions/api/ListPartitionReassignmentsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class OngoingPartitionReassignment:
    partition_index: int = 0  # versions 0+
    replicas: list[int] = field(default_factory=list)  # versions 0+, brokerId
    adding_replicas: list[int] = field(default_factory=list)  # versions 0+, brokerId
    removing_replicas: list[int] = field(default_factory=list)  # versions 0+, brokerId


@dataclass(slots=True)
class OngoingTopicReassignment:
    name: str = ""  # versions 0+, topicName
    partitions: list[OngoingPartitionReassignment] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ListPartitionReassignmentsResponse:
    SPEC: ClassVar[str] = "api/ListPartitionReassignmentsResponse"
    API_KEY: ClassVar[int] = 46
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
    topics: list[OngoingTopicReassignment] = field(default_factory=list)  # versions 0+
