"""ElectLeadersResponse: generated from definitions/api/ElectLeadersResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class PartitionResult:
    partition_id: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class ReplicaElectionResult:
    topic: str = ""  # versions 0+, topicName
    partition_result: list[PartitionResult] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ElectLeadersResponse:
    SPEC: ClassVar[str] = "api/ElectLeadersResponse"
    API_KEY: ClassVar[int] = 43
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 1+
    # versions 0+
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)
