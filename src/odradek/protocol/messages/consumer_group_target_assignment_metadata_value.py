"""ConsumerGroupTargetAssignmentMetadataValue: generated from definitions/group/ConsumerGroupTargetAssignmentMetadataValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    SPEC: ClassVar[str] = "group/ConsumerGroupTargetAssignmentMetadataValue"
    API_KEY: ClassVar[int] = 6
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    assignment_epoch: int = 0  # versions 0+
