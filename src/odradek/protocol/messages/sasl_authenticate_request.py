"""SaslAuthenticateRequest: generated from definitions/api/SaslAuthenticateRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class SaslAuthenticateRequest:
    SPEC: ClassVar[str] = "api/SaslAuthenticateRequest"
    API_KEY: ClassVar[int] = 36
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    auth_bytes: bytes = b""  # versions 0+
