"""StreamsGroupTargetAssignmentMetadataValue: generated from definitions/group/StreamsGroupTargetAssignmentMetadataValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class StreamsGroupTargetAssignmentMetadataValue:
    SPEC: ClassVar[str] = "group/StreamsGroupTargetAssignmentMetadataValue"
    API_KEY: ClassVar[int] = 20
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    assignment_epoch: int = 0  # versions 0+
