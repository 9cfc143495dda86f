"""ListConfigResourcesRequest: generated from definitions/api/ListConfigResourcesRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ListConfigResourcesRequest:
    SPEC: ClassVar[str] = "api/ListConfigResourcesRequest"
    API_KEY: ClassVar[int] = 74
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    resource_types: list[int] = field(default_factory=list)  # versions 1+
