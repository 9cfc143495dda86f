"""ShareGroupTargetAssignmentMetadataKey: generated from definitions/group/ShareGroupTargetAssignmentMetadataKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ShareGroupTargetAssignmentMetadataKey:
    SPEC: ClassVar[str] = "group/ShareGroupTargetAssignmentMetadataKey"
    API_KEY: ClassVar[int] = 12
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group_id: str = ""  # versions 0
