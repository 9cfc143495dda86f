"""CreateDelegationTokenResponse: generated from definitions/api/CreateDelegationTokenResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class CreateDelegationTokenResponse:
    SPEC: ClassVar[str] = "api/CreateDelegationTokenResponse"
    API_KEY: ClassVar[int] = 38
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    error_code: int = 0  # versions 0+
    principal_type: str = ""  # versions 0+
    principal_name: str = ""  # versions 0+
    token_requester_principal_type: str = ""  # versions 3+
    token_requester_principal_name: str = ""  # versions 3+
    issue_timestamp_ms: int = 0  # versions 0+
    expiry_timestamp_ms: int = 0  # versions 0+
    max_timestamp_ms: int = 0  # versions 0+
    token_id: str = ""  # versions 0+
    hmac: bytes = b""  # versions 0+
    throttle_time_ms: int = 0  # versions 0+
