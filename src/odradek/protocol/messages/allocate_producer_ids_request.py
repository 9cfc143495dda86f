"""AllocateProducerIdsRequest: generated from definitions/api/AllocateProducerIdsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class AllocateProducerIdsRequest:
    SPEC: ClassVar[str] = "api/AllocateProducerIdsRequest"
    API_KEY: ClassVar[int] = 67
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    broker_id: int = 0  # versions 0+, brokerId
    broker_epoch: int = -1  # versions 0+
