"""AlterClientQuotasResponse: generated from definitions/api/AlterClientQuotasResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class EntityData:
    entity_type: str = ""  # versions 0+
    entity_name: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class EntryData:
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
    entity: list[EntityData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AlterClientQuotasResponse:
    SPEC: ClassVar[str] = "api/AlterClientQuotasResponse"
    API_KEY: ClassVar[int] = 49
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    throttle_time_ms: int = 0  # versions 0+
    entries: list[EntryData] = field(default_factory=list)  # versions 0+
