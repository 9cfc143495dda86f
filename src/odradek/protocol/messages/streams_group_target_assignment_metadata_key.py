"""StreamsGroupTargetAssignmentMetadataKey: generated from definitions/group/StreamsGroupTargetAssignmentMetadataKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class StreamsGroupTargetAssignmentMetadataKey:
    SPEC: ClassVar[str] = "group/StreamsGroupTargetAssignmentMetadataKey"
    API_KEY: ClassVar[int] = 20
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group_id: str = ""  # versions 0
