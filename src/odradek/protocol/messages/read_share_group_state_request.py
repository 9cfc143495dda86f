"""ReadShareGroupStateRequest: generated from definitions/api/ReadShareGroupStateRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class PartitionData:
    partition: int = 0  # versions 0+
    leader_epoch: int = 0  # versions 0+


@dataclass(slots=True)
class ReadStateData:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[PartitionData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ReadShareGroupStateRequest:
    SPEC: ClassVar[str] = "api/ReadShareGroupStateRequest"
    API_KEY: ClassVar[int] = 84
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_id: str = ""  # versions 0+
    topics: list[ReadStateData] = field(default_factory=list)  # versions 0+
