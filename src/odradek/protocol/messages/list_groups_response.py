"""ListGroupsResponse: generated from definitions/api/ListGroupsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ListedGroup:
    group_id: str = ""  # versions 0+, groupId
    protocol_type: str = ""  # versions 0+
    group_state: str = ""  # versions 4+
    group_type: str = ""  # versions 5+


@dataclass(slots=True)
class ListGroupsResponse:
    SPEC: ClassVar[str] = "api/ListGroupsResponse"
    API_KEY: ClassVar[int] = 16
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0  # versions 1+
    error_code: int = 0  # versions 0+
    groups: list[ListedGroup] = field(default_factory=list)  # versions 0+
