"""ShareGroupDescribeRequest: generated from definitions/api/ShareGroupDescribeRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ShareGroupDescribeRequest:
    SPEC: ClassVar[str] = "api/ShareGroupDescribeRequest"
    API_KEY: ClassVar[int] = 77
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_ids: list[str] = field(default_factory=list)  # versions 0+, groupId
    include_authorized_operations: bool = False  # versions 0+
