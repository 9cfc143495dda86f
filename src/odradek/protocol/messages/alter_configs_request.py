"""AlterConfigsRequest: generated from definitions/api/AlterConfigsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class AlterableConfig:
    name: str = ""  # versions 0+
    value: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class AlterConfigsResource:
    resource_type: int = 0  # versions 0+
    resource_name: str = ""  # versions 0+
    configs: list[AlterableConfig] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AlterConfigsRequest:
    SPEC: ClassVar[str] = "api/AlterConfigsRequest"
    API_KEY: ClassVar[int] = 33
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    resources: list[AlterConfigsResource] = field(default_factory=list)  # versions 0+
    validate_only: bool = False  # versions 0+
