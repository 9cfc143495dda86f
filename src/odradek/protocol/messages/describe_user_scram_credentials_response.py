"""DescribeUserScramCredentialsResponse: generated from definitions/api/DescribeUserScramCredentialsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class CredentialInfo:
    mechanism: int = 0  # versions 0+
    iterations: int = 0  # versions 0+


@dataclass(slots=True)
class DescribeUserScramCredentialsResult:
    user: str = ""  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
    credential_infos: list[CredentialInfo] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeUserScramCredentialsResponse:
    SPEC: ClassVar[str] = "api/DescribeUserScramCredentialsResponse"
    API_KEY: ClassVar[int] = 50
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
    results: list[DescribeUserScramCredentialsResult] = field(default_factory=list)  # versions 0+
