"""AlterPartitionReassignmentsResponse: generated from definitions/api/AlterPartitionReassignmentsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ReassignablePartitionResponse:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class ReassignableTopicResponse:
    name: str = ""  # versions 0+, topicName
    partitions: list[ReassignablePartitionResponse] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse:
    SPEC: ClassVar[str] = "api/AlterPartitionReassignmentsResponse"
    API_KEY: ClassVar[int] = 45
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    allow_replication_factor_change: bool = True  # versions 1+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
    responses: list[ReassignableTopicResponse] = field(default_factory=list)  # versions 0+
