"""ExpireDelegationTokenResponse: generated from definitions/api/ExpireDelegationTokenResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ExpireDelegationTokenResponse:
    SPEC: ClassVar[str] = "api/ExpireDelegationTokenResponse"
    API_KEY: ClassVar[int] = 40
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    error_code: int = 0  # versions 0+
    expiry_timestamp_ms: int = 0  # versions 0+
    throttle_time_ms: int = 0  # versions 0+
