"""ListGroupsRequest: generated from definitions/api/ListGroupsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ListGroupsRequest:
    SPEC: ClassVar[str] = "api/ListGroupsRequest"
    API_KEY: ClassVar[int] = 16
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    states_filter: list[str] = field(default_factory=list)  # versions 4+
    types_filter: list[str] = field(default_factory=list)  # versions 5+
