"""ExpireDelegationTokenRequest: generated from definitions/api/ExpireDelegationTokenRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ExpireDelegationTokenRequest:
    SPEC: ClassVar[str] = "api/ExpireDelegationTokenRequest"
    API_KEY: ClassVar[int] = 40
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    hmac: bytes = b""  # versions 0+
    expiry_time_period_ms: int = 0  # versions 0+
