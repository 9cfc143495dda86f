"""ApiVersionsResponse: generated from definitions/api/ApiVersionsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ApiVersion:
    api_key: int = 0  # versions 0+
    min_version: int = 0  # versions 0+
    max_version: int = 0  # versions 0+


@dataclass(slots=True)
class SupportedFeatureKey:
    name: str = ""  # versions 3+
    min_version: int = 0  # versions 3+
    max_version: int = 0  # versions 3+


@dataclass(slots=True)
class FinalizedFeatureKey:
    name: str = ""  # versions 3+
    max_version_level: int = 0  # versions 3+
    min_version_level: int = 0  # versions 3+


@dataclass(slots=True)
class ApiVersionsResponse:
    SPEC: ClassVar[str] = "api/ApiVersionsResponse"
    API_KEY: ClassVar[int] = 18
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    error_code: int = 0  # versions 0+
    api_keys: list[ApiVersion] = field(default_factory=list)  # versions 0+
    throttle_time_ms: int = 0  # versions 1+
    # versions 3+, tag 0
    supported_features: list[SupportedFeatureKey] = field(default_factory=list)
    finalized_features_epoch: int = -1  # versions 3+, tag 1
    # versions 3+, tag 2
    finalized_features: list[FinalizedFeatureKey] = field(default_factory=list)
    zk_migration_ready: bool = False  # versions 3+, tag 3
