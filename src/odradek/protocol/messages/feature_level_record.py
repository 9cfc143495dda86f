"""FeatureLevelRecord: generated from definitions/metadata/FeatureLevelRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class FeatureLevelRecord:
    SPEC: ClassVar[str] = "metadata/FeatureLevelRecord"
    API_KEY: ClassVar[int] = 12
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    name: str = ""  # versions 0+
    feature_level: int = 0  # versions 0+
