"""DescribeGroupsRequest: generated from definitions/api/DescribeGroupsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DescribeGroupsRequest:
    SPEC: ClassVar[str] = "api/DescribeGroupsRequest"
    API_KEY: ClassVar[int] = 15
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 5

    groups: list[str] = field(default_factory=list)  # versions 0+, groupId
    include_authorized_operations: bool = False  # versions 3+
