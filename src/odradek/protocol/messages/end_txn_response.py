"""EndTxnResponse: generated from definitions/api/EndTxnResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class EndTxnResponse:
    SPEC: ClassVar[str] = "api/EndTxnResponse"
    API_KEY: ClassVar[int] = 26
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    producer_id: int = -1  # versions 5+, producerId
    producer_epoch: int = -1  # versions 5+
