"""DescribeClientQuotasRequest: generated from definitions/api/DescribeClientQuotasRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ComponentData:
    entity_type: str = ""  # versions 0+
    match_type: int = 0  # versions 0+
    match: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class DescribeClientQuotasRequest:
    SPEC: ClassVar[str] = "api/DescribeClientQuotasRequest"
    API_KEY: ClassVar[int] = 48
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    components: list[ComponentData] = field(default_factory=list)  # versions 0+
    strict: bool = False  # versions 0+
