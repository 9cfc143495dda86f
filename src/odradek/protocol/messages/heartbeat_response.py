"""HeartbeatResponse: generated from definitions/api/HeartbeatResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class HeartbeatResponse:
    SPEC: ClassVar[str] = "api/HeartbeatResponse"
    API_KEY: ClassVar[int] = 12
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0  # versions 1+
    error_code: int = 0  # versions 0+
