"""AlterUserScramCredentialsResponse: generated from definitions/api/AlterUserScramCredentialsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class AlterUserScramCredentialsResult:
    user: str = ""  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class AlterUserScramCredentialsResponse:
    SPEC: ClassVar[str] = "api/AlterUserScramCredentialsResponse"
    API_KEY: ClassVar[int] = 51
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    results: list[AlterUserScramCredentialsResult] = field(default_factory=list)  # versions 0+
