"""ConfigRecord: generated from definitions/metadata/ConfigRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ConfigRecord:
    SPEC: ClassVar[str] = "metadata/ConfigRecord"
    API_KEY: ClassVar[int] = 4
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    resource_type: int = 0  # versions 0+
    resource_name: str = ""  # versions 0+
    name: str = ""  # versions 0+
    value: str | None = ""  # versions 0+, nullable 0+
