"""ProducerIdsRecord: generated from definitions/metadata/ProducerIdsRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ProducerIdsRecord:
    SPEC: ClassVar[str] = "metadata/ProducerIdsRecord"
    API_KEY: ClassVar[int] = 15
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    broker_id: int = 0  # versions 0+, brokerId
    broker_epoch: int = -1  # versions 0+
    next_producer_id: int = 0  # versions 0+
