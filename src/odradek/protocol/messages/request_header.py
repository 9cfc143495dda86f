"""RequestHeader: generated from definitions/api/RequestHeader.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class RequestHeader:
    SPEC: ClassVar[str] = "api/RequestHeader"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    request_api_key: int = 0  # versions 0+
    request_api_version: int = 0  # versions 0+
    correlation_id: int = 0  # versions 0+
    client_id: str | None = ""  # versions 1+, nullable 1+
