"""IncrementalAlterConfigsResponse: generated from definitions/api/IncrementalAlterConfigsResponse.json, do not edit."""

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
class IncrementalAlterConfigsResponse:
    SPEC: ClassVar[str] = "api/IncrementalAlterConfigsResponse"
    API_KEY: ClassVar[int] = 44
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    throttle_time_ms: int = 0  # versions 0+
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)  # versions 0+
