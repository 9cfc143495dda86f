"""ProducerSnapshot: generated from definitions/storage/ProducerSnapshot.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ProducerEntry:
    producer_id: int = 0  # versions 1
    epoch: int = 0  # versions 1
    last_sequence: int = 0  # versions 1
    last_offset: int = 0  # versions 1
    offset_delta: int = 0  # versions 1
    timestamp: int = 0  # versions 1
    coordinator_epoch: int = 0  # versions 1
    current_txn_first_offset: int = 0  # versions 1


@dataclass(slots=True)
class ProducerSnapshot:
    SPEC: ClassVar[str] = "storage/ProducerSnapshot"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 32767

    crc: int = 0  # versions 1
    producer_entries: list[ProducerEntry] = field(default_factory=list)  # versions 1
