"""ShareSnapshotValue: generated from definitions/share/ShareSnapshotValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class StateBatch:
    first_offset: int = 0  # versions 0+
    last_offset: int = 0  # versions 0+
    delivery_state: int = 0  # versions 0+
    delivery_count: int = 0  # versions 0+


@dataclass(slots=True)
class ShareSnapshotValue:
    SPEC: ClassVar[str] = "share/ShareSnapshotValue"
    API_KEY: ClassVar[int] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    snapshot_epoch: int = 0  # versions 0+
    state_epoch: int = 0  # versions 0+
    leader_epoch: int = 0  # versions 0+
    start_offset: int = 0  # versions 0+
    create_timestamp: int = 0  # versions 0+
    write_timestamp: int = 0  # versions 0+
    state_batches: list[StateBatch] = field(default_factory=list)  # versions 0+
