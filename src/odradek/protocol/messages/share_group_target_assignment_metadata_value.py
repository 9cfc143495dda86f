"""ShareGroupTargetAssignmentMetadataValue: generated from definitions/group/ShareGroupTargetAssignmentMetadataValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ShareGroupTargetAssignmentMetadataValue:
    SPEC: ClassVar[str] = "group/ShareGroupTargetAssignmentMetadataValue"
    API_KEY: ClassVar[int] = 12
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    assignment_epoch: int = 0  # versions 0+
