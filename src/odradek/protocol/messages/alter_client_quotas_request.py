"""AlterClientQuotasRequest: generated from definitions/api/AlterClientQuotasRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class EntityData:
    entity_type: str = ""  # versions 0+
    entity_name: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class OpData:
    key: str = ""  # versions 0+
    value: float = 0.0  # versions 0+
    remove: bool = False  # versions 0+


@dataclass(slots=True)
class EntryData:
    entity: list[EntityData] = field(default_factory=list)  # versions 0+
    ops: list[OpData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AlterClientQuotasRequest:
    SPEC: ClassVar[str] = "api/AlterClientQuotasRequest"
    API_KEY: ClassVar[int] = 49
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    entries: list[EntryData] = field(default_factory=list)  # versions 0+
    validate_only: bool = False  # versions 0+
