"""CreateAclsResponse: generated from definitions/api/CreateAclsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class AclCreationResult:
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class CreateAclsResponse:
    SPEC: ClassVar[str] = "api/CreateAclsResponse"
    API_KEY: ClassVar[int] = 30
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0  # versions 0+
    results: list[AclCreationResult] = field(default_factory=list)  # versions 0+
