"""AddOffsetsToTxnResponse: generated from definitions/api/AddOffsetsToTxnResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class AddOffsetsToTxnResponse:
    SPEC: ClassVar[str] = "api/AddOffsetsToTxnResponse"
    API_KEY: ClassVar[int] = 25
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
