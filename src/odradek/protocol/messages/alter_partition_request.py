"""AlterPartitionRequest: generated from definitions/api/AlterPartitionRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class BrokerState:
    broker_id: int = 0  # versions 3+, brokerId
    broker_epoch: int = -1  # versions 3+


@dataclass(slots=True)
class PartitionData:
    partition_index: int = 0  # versions 0+
    leader_epoch: int = 0  # versions 0+
    new_isr: list[int] = field(default_factory=list)  # versions 0-2, brokerId
    new_isr_with_epochs: list[BrokerState] = field(default_factory=list)  # versions 3+
    leader_recovery_state: int = 0  # versions 1+
    partition_epoch: int = 0  # versions 0+


@dataclass(slots=True)
class TopicData:
    topic_id: Uuid = ZERO_UUID  # versions 2+
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AlterPartitionRequest:
    SPEC: ClassVar[str] = "api/AlterPartitionRequest"
    API_KEY: ClassVar[int] = 56
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 0

    broker_id: int = 0  # versions 0+, brokerId
    broker_epoch: int = -1  # versions 0+
    topics: list[TopicData] = field(default_factory=list)  # versions 0+
