"""RemoveRaftVoterResponse: generated from definitions/api/RemoveRaftVoterResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class RemoveRaftVoterResponse:
    SPEC: ClassVar[str] = "api/RemoveRaftVoterResponse"
    API_KEY: ClassVar[int] = 81
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
