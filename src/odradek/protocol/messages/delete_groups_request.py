"""DeleteGroupsRequest: generated from definitions/api/DeleteGroupsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DeleteGroupsRequest:
    SPEC: ClassVar[str] = "api/DeleteGroupsRequest"
    API_KEY: ClassVar[int] = 42
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 2

    groups_names: list[str] = field(default_factory=list)  # versions 0+, groupId
