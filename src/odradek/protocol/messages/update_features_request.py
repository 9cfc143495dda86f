"""UpdateFeaturesRequest: generated from definitions/api/UpdateFeaturesRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class FeatureUpdateKey:
    feature: str = ""  # versions 0+
    max_version_level: int = 0  # versions 0+
    allow_downgrade: bool = False  # versions 0
    upgrade_type: int = 1  # versions 1+


@dataclass(slots=True)
class UpdateFeaturesRequest:
    SPEC: ClassVar[str] = "api/UpdateFeaturesRequest"
    API_KEY: ClassVar[int] = 57
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    timeout_ms: int = 60000  # versions 0+
    feature_updates: list[FeatureUpdateKey] = field(default_factory=list)  # versions 0+
    validate_only: bool = False  # versions 1+
