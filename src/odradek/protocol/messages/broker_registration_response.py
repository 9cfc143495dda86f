"""BrokerRegistrationResponse: generated from definitions/api/BrokerRegistrationResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class BrokerRegistrationResponse:
    SPEC: ClassVar[str] = "api/BrokerRegistrationResponse"
    API_KEY: ClassVar[int] = 62
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    broker_epoch: int = -1  # versions 0+
