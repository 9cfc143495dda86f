"""PartitionRecord: generated from definitions/metadata/PartitionRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class PartitionRecord:
    SPEC: ClassVar[str] = "metadata/PartitionRecord"
    API_KEY: ClassVar[int] = 3
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    partition_id: int = -1  # versions 0+
    topic_id: Uuid = ZERO_UUID  # versions 0+
    replicas: list[int] = field(default_factory=list)  # versions 0+, brokerId
    isr: list[int] = field(default_factory=list)  # versions 0+
    removing_replicas: list[int] = field(default_factory=list)  # versions 0+, brokerId
    adding_replicas: list[int] = field(default_factory=list)  # versions 0+, brokerId
    leader: int = -1  # versions 0+, brokerId
    leader_recovery_state: int = 0  # versions 0+, tag 0
    leader_epoch: int = -1  # versions 0+
    partition_epoch: int = -1  # versions 0+
    directories: list[Uuid] = field(default_factory=list)  # versions 1+
    eligible_leader_replicas: list[int] | None = None  # versions 2+, nullable 2+, tag 1, brokerId
    last_known_elr: list[int] | None = None  # versions 2+, nullable 2+, tag 2, brokerId
