"""UnregisterBrokerRecord: generated from definitions/metadata/UnregisterBrokerRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class UnregisterBrokerRecord:
    SPEC: ClassVar[str] = "metadata/UnregisterBrokerRecord"
    API_KEY: ClassVar[int] = 1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    broker_id: int = 0  # versions 0+, brokerId
    broker_epoch: int = 0  # versions 0+
