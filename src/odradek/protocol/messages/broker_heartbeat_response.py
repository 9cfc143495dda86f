"""BrokerHeartbeatResponse: generated from definitions/api/BrokerHeartbeatResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class BrokerHeartbeatResponse:
    SPEC: ClassVar[str] = "api/BrokerHeartbeatResponse"
    API_KEY: ClassVar[int] = 63
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    is_caught_up: bool = False  # versions 0+
    is_fenced: bool = True  # versions 0+
    should_shut_down: bool = False  # versions 0+
