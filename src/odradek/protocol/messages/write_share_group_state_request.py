"""WriteShareGroupStateRequest: generated from definitions/api/WriteShareGroupStateRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class StateBatch:
    first_offset: int = 0  # versions 0+
    last_offset: int = 0  # versions 0+
    delivery_state: int = 0  # versions 0+
    delivery_count: int = 0  # versions 0+


@dataclass(slots=True)
class PartitionData:
    partition: int = 0  # versions 0+
    state_epoch: int = 0  # versions 0+
    leader_epoch: int = 0  # versions 0+
    start_offset: int = 0  # versions 0+
    state_batches: list[StateBatch] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class WriteStateData:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class WriteShareGroupStateRequest:
    SPEC: ClassVar[str] = "api/WriteShareGroupStateRequest"
    API_KEY: ClassVar[int] = 85
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_id: str = ""  # versions 0+
    topics: list[WriteStateData] = field(default_factory=list)  # versions 0+
