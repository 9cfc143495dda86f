"""AlterPartitionResponse: generated from definitions/api/AlterPartitionResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    leader_id: int = 0  # versions 0+, brokerId
    leader_epoch: int = 0  # versions 0+
    isr: list[int] = field(default_factory=list)  # versions 0+, brokerId
    leader_recovery_state: int = 0  # versions 1+
    partition_epoch: int = 0  # versions 0+


@dataclass(slots=True)
class TopicData:
    topic_id: Uuid = ZERO_UUID  # versions 2+
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AlterPartitionResponse:
    SPEC: ClassVar[str] = "api/AlterPartitionResponse"
    API_KEY: ClassVar[int] = 56
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    topics: list[TopicData] = field(default_factory=list)  # versions 0+
