"""LeaveGroupRequest: generated from definitions/api/LeaveGroupRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class MemberIdentity:
    member_id: str = ""  # versions 3+
    group_instance_id: str | None = None  # versions 3+, nullable 3+
    reason: str | None = None  # versions 5+, nullable 5+


@dataclass(slots=True)
class LeaveGroupRequest:
    SPEC: ClassVar[str] = "api/LeaveGroupRequest"
    API_KEY: ClassVar[int] = 13
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4

    group_id: str = ""  # versions 0+, groupId
    member_id: str = ""  # versions 0-2
    members: list[MemberIdentity] = field(default_factory=list)  # versions 3+
