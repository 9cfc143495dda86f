"""AlterPartitionReassignmentsRequest: generated from definitions/api/AlterPartitionReassignmentsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ReassignablePartition:
    partition_index: int = 0  # versions 0+
    replicas: list[int] | None = None  # versions 0+, nullable 0+, brokerId


@dataclass(slots=True)
class ReassignableTopic:
    name: str = ""  # versions 0+, topicName
    partitions: list[ReassignablePartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest:
    SPEC: ClassVar[str] = "api/AlterPartitionReassignmentsRequest"
    API_KEY: ClassVar[int] = 45
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    timeout_ms: int = 60000  # versions 0+
    allow_replication_factor_change: bool = True  # versions 1+
    topics: list[ReassignableTopic] = field(default_factory=list)  # versions 0+
