"""InitProducerIdResponse: generated from definitions/api/InitProducerIdResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class InitProducerIdResponse:
    SPEC: ClassVar[str] = "api/InitProducerIdResponse"
    API_KEY: ClassVar[int] = 22
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    producer_id: int = -1  # versions 0+, producerId
    producer_epoch: int = 0  # versions 0+
    ongoing_txn_producer_id: int = -1  # versions 6+, producerId
    ongoing_txn_producer_epoch: int = -1  # versions 6+
