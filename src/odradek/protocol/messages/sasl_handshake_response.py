"""SaslHandshakeResponse: generated from definitions/api/SaslHandshakeResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class SaslHandshakeResponse:
    SPEC: ClassVar[str] = "api/SaslHandshakeResponse"
    API_KEY: ClassVar[int] = 17
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 32767

    error_code: int = 0  # versions 0+
    mechanisms: list[str] = field(default_factory=list)  # versions 0+
