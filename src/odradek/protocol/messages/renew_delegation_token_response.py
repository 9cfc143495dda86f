"""RenewDelegationTokenResponse: generated from definitions/api/RenewDelegationTokenResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class RenewDelegationTokenResponse:
    SPEC: ClassVar[str] = "api/RenewDelegationTokenResponse"
    API_KEY: ClassVar[int] = 39
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    error_code: int = 0  # versions 0+
    expiry_timestamp_ms: int = 0  # versions 0+
    throttle_time_ms: int = 0  # versions 0+
