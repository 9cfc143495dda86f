"""SaslHandshakeRequest: generated from definitions/api/SaslHandshakeRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class SaslHandshakeRequest:
    SPEC: ClassVar[str] = "api/SaslHandshakeRequest"
    API_KEY: ClassVar[int] = 17
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 32767

    mechanism: str = ""  # versions 0+
