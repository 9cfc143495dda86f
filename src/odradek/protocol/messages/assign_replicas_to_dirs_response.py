"""AssignReplicasToDirsResponse: generated from definitions/api/AssignReplicasToDirsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+


@dataclass(slots=True)
class TopicData:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DirectoryData:
    id: Uuid = ZERO_UUID  # versions 0+
    topics: list[TopicData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AssignReplicasToDirsResponse:
    SPEC: ClassVar[str] = "api/AssignReplicasToDirsResponse"
    API_KEY: ClassVar[int] = 73
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    directories: list[DirectoryData] = field(default_factory=list)  # versions 0+
