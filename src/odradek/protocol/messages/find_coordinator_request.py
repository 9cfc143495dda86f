"""FindCoordinatorRequest: generated from definitions/api/FindCoordinatorRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class FindCoordinatorRequest:
    SPEC: ClassVar[str] = "api/FindCoordinatorRequest"
    API_KEY: ClassVar[int] = 10
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 3

    key: str = ""  # versions 0-3
    key_type: int = 0  # versions 1+
    coordinator_keys: list[str] = field(default_factory=list)  # versions 4+
