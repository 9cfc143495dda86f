"""ListConfigResourcesResponse: generated from definitions/api/ListConfigResourcesResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ConfigResource:
    resource_name: str = ""  # versions 0+
    resource_type: int = 16  # versions 1+


@dataclass(slots=True)
class ListConfigResourcesResponse:
    SPEC: ClassVar[str] = "api/ListConfigResourcesResponse"
    API_KEY: ClassVar[int] = 74
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    config_resources: list[ConfigResource] = field(default_factory=list)  # versions 0+
