"""LeaveGroupResponse: generated from definitions/api/LeaveGroupResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class MemberResponse:
    member_id: str = ""  # versions 3+
    group_instance_id: str | None = ""  # versions 3+, nullable 3+
    error_code: int = 0  # versions 3+


@dataclass(slots=True)
class LeaveGroupResponse:
    SPEC: ClassVar[str] = "api/LeaveGroupResponse"
    API_KEY: ClassVar[int] = 13
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4

    throttle_time_ms: int = 0  # versions 1+
    error_code: int = 0  # versions 0+
    members: list[MemberResponse] = field(default_factory=list)  # versions 3+
