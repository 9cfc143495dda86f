"""SaslAuthenticateResponse: generated from definitions/api/SaslAuthenticateResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class SaslAuthenticateResponse:
    SPEC: ClassVar[str] = "api/SaslAuthenticateResponse"
    API_KEY: ClassVar[int] = 36
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
    auth_bytes: bytes = b""  # versions 0+
    session_lifetime_ms: int = 0  # versions 1+
