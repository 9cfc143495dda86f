"""BrokerRegistrationChangeRecord: generated from definitions/metadata/BrokerRegistrationChangeRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import Uuid


@dataclass(slots=True)
class BrokerRegistrationChangeRecord:
    SPEC: ClassVar[str] = "metadata/BrokerRegistrationChangeRecord"
    API_KEY: ClassVar[int] = 17
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    broker_id: int = 0  # versions 0+, brokerId
    broker_epoch: int = 0  # versions 0+
    fenced: int = 0  # versions 0+, tag 0
    in_controlled_shutdown: int = 0  # versions 1+, tag 1
    log_dirs: list[Uuid] = field(default_factory=list)  # versions 2+, tag 2
    drained: int = 0  # versions 0+, tag 10001, not in Kafka
