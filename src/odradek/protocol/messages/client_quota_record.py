"""ClientQuotaRecord: generated from definitions/metadata/ClientQuotaRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class EntityData:
    entity_type: str = ""  # versions 0+
    entity_name: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class ClientQuotaRecord:
    SPEC: ClassVar[str] = "metadata/ClientQuotaRecord"
    API_KEY: ClassVar[int] = 14
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    entity: list[EntityData] = field(default_factory=list)  # versions 0+
    key: str = ""  # versions 0+
    value: float = 0.0  # versions 0+
    remove: bool = False  # versions 0+
