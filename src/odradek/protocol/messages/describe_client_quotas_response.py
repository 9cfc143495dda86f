"""DescribeClientQuotasResponse: generated from definitions/api/DescribeClientQuotasResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class EntityData:
    entity_type: str = ""  # versions 0+
    entity_name: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class ValueData:
    key: str = ""  # versions 0+
    value: float = 0.0  # versions 0+


@dataclass(slots=True)
class EntryData:
    entity: list[EntityData] = field(default_factory=list)  # versions 0+
    values: list[ValueData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeClientQuotasResponse:
    SPEC: ClassVar[str] = "api/DescribeClientQuotasResponse"
    API_KEY: ClassVar[int] = 48
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
    entries: list[EntryData] | None = field(default_factory=list)  # versions 0+, nullable 0+
