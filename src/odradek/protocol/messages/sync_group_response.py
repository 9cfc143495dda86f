"""SyncGroupResponse: generated from definitions/api/SyncGroupResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class SyncGroupResponse:
    SPEC: ClassVar[str] = "api/SyncGroupResponse"
    API_KEY: ClassVar[int] = 14
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0  # versions 1+
    error_code: int = 0  # versions 0+
    protocol_type: str | None = None  # versions 5+, nullable 5+
    protocol_name: str | None = None  # versions 5+, nullable 5+
    assignment: bytes = b""  # versions 0+
