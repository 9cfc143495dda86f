"""FindCoordinatorResponse: generated from definitions/api/FindCoordinatorResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class Coordinator:
    key: str = ""  # versions 4+
    node_id: int = 0  # versions 4+, brokerId
    host: str = ""  # versions 4+
    port: int = 0  # versions 4+
    error_code: int = 0  # versions 4+
    error_message: str | None = ""  # versions 4+, nullable 4+


@dataclass(slots=True)
class FindCoordinatorResponse:
    SPEC: ClassVar[str] = "api/FindCoordinatorResponse"
    API_KEY: ClassVar[int] = 10
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0  # versions 1+
    error_code: int = 0  # versions 0-3
    error_message: str | None = ""  # versions 1-3, nullable 1-3
    node_id: int = 0  # versions 0-3, brokerId
    host: str = ""  # versions 0-3
    port: int = 0  # versions 0-3
    coordinators: list[Coordinator] = field(default_factory=list)  # versions 4+
