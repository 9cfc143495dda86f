"""RenewDelegationTokenRequest: generated from definitions/api/RenewDelegationTokenRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class RenewDelegationTokenRequest:
    SPEC: ClassVar[str] = "api/RenewDelegationTokenRequest"
    API_KEY: ClassVar[int] = 39
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    hmac: bytes = b""  # versions 0+
    renew_period_ms: int = 0  # versions 0+
