"""AlterConfigsResponse: generated from definitions/api/AlterConfigsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class AlterConfigsResourceResponse:
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
    resource_type: int = 0  # versions 0+
    resource_name: str = ""  # versions 0+


@dataclass(slots=True)
class AlterConfigsResponse:
    SPEC: ClassVar[str] = "api/AlterConfigsResponse"
    API_KEY: ClassVar[int] = 33
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0  # versions 0+
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)  # versions 0+
