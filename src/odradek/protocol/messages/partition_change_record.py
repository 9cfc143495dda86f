"""PartitionChangeRecord: generated from definitions/metadata/PartitionChangeRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class PartitionChangeRecord:
    SPEC: ClassVar[str] = "metadata/PartitionChangeRecord"
    API_KEY: ClassVar[int] = 5
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    partition_id: int = -1  # versions 0+
    topic_id: Uuid = ZERO_UUID  # versions 0+
    isr: list[int] | None = None  # versions 0+, nullable 0+, tag 0, brokerId
    leader: int = -2  # versions 0+, tag 1, brokerId
    replicas: list[int] | None = None  # versions 0+, nullable 0+, tag 2, brokerId
    removing_replicas: list[int] | None = None  # versions 0+, nullable 0+, tag 3, brokerId
    adding_replicas: list[int] | None = None  # versions 0+, nullable 0+, tag 4, brokerId
    leader_recovery_state: int = -1  # versions 0+, tag 5
    directories: list[Uuid] | None = None  # versions 1+, nullable 1+, tag 8
    eligible_leader_replicas: list[int] | None = None  # versions 2+, nullable 2+, tag 6, brokerId
    last_known_elr: list[int] | None = None  # versions 2+, nullable 2+, tag 7, brokerId
