"""ResponseHeader: generated from definitions/api/ResponseHeader.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ResponseHeader:
    SPEC: ClassVar[str] = "api/ResponseHeader"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    correlation_id: int = 0  # versions 0+
