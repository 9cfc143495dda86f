"""AlterReplicaLogDirsResponse: generated from definitions/api/AlterReplicaLogDirsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class AlterReplicaLogDirPartitionResult:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+


@dataclass(slots=True)
class AlterReplicaLogDirTopicResult:
    topic_name: str = ""  # versions 0+, topicName
    partitions: list[AlterReplicaLogDirPartitionResult] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AlterReplicaLogDirsResponse:
    SPEC: ClassVar[str] = "api/AlterReplicaLogDirsResponse"
    API_KEY: ClassVar[int] = 34
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0  # versions 0+
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)  # versions 0+
