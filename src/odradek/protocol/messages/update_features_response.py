"""UpdateFeaturesResponse: generated from definitions/api/UpdateFeaturesResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class UpdatableFeatureResult:
    feature: str = ""  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class UpdateFeaturesResponse:
    SPEC: ClassVar[str] = "api/UpdateFeaturesResponse"
    API_KEY: ClassVar[int] = 57
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
    results: list[UpdatableFeatureResult] = field(default_factory=list)  # versions 0-1
