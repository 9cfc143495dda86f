"""StreamsGroupTargetAssignmentMemberKey: generated from definitions/group/StreamsGroupTargetAssignmentMemberKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class StreamsGroupTargetAssignmentMemberKey:
    SPEC: ClassVar[str] = "group/StreamsGroupTargetAssignmentMemberKey"
    API_KEY: ClassVar[int] = 21
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group_id: str = ""  # versions 0
    member_id: str = ""  # versions 0
