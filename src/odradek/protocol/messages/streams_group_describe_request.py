"""StreamsGroupDescribeRequest: generated from definitions/api/StreamsGroupDescribeRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class StreamsGroupDescribeRequest:
    SPEC: ClassVar[str] = "api/StreamsGroupDescribeRequest"
    API_KEY: ClassVar[int] = 89
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_ids: list[str] = field(default_factory=list)  # versions 0+, groupId
    include_authorized_operations: bool = False  # versions 0+
