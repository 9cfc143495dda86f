"""EnvelopeResponse: generated from definitions/api/EnvelopeResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class EnvelopeResponse:
    SPEC: ClassVar[str] = "api/EnvelopeResponse"
    API_KEY: ClassVar[int] = 58
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    response_data: bytes | None = None  # versions 0+, nullable 0+
    error_code: int = 0  # versions 0+
