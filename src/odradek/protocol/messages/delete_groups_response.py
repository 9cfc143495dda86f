"""DeleteGroupsResponse: generated from definitions/api/DeleteGroupsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DeletableGroupResult:
    group_id: str = ""  # versions 0+, groupId
    error_code: int = 0  # versions 0+


@dataclass(slots=True)
class DeleteGroupsResponse:
    SPEC: ClassVar[str] = "api/DeleteGroupsResponse"
    API_KEY: ClassVar[int] = 42
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0  # versions 0+
    results: list[DeletableGroupResult] = field(default_factory=list)  # versions 0+
