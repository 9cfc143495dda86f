"""ShareGroupTargetAssignmentMemberKey: generated from definitions/group/ShareGroupTargetAssignmentMemberKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ShareGroupTargetAssignmentMemberKey:
    SPEC: ClassVar[str] = "group/ShareGroupTargetAssignmentMemberKey"
    API_KEY: ClassVar[int] = 13
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group_id: str = ""  # versions 0
    member_id: str = ""  # versions 0
