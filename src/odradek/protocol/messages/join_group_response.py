"""JoinGroupResponse: generated from definitions/api/JoinGroupResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class JoinGroupResponseMember:
    member_id: str = ""  # versions 0+
    group_instance_id: str | None = None  # versions 5+, nullable 5+
    metadata: bytes = b""  # versions 0+


@dataclass(slots=True)
class JoinGroupResponse:
    SPEC: ClassVar[str] = "api/JoinGroupResponse"
    API_KEY: ClassVar[int] = 11
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 9
    FLEXIBLE_FROM: ClassVar[int] = 6

    throttle_time_ms: int = 0  # versions 2+
    error_code: int = 0  # versions 0+
    generation_id: int = -1  # versions 0+
    protocol_type: str | None = None  # versions 7+, nullable 7+
    protocol_name: str | None = ""  # versions 0+, nullable 7+
    leader: str = ""  # versions 0+
    skip_assignment: bool = False  # versions 9+
    member_id: str = ""  # versions 0+
    members: list[JoinGroupResponseMember] = field(default_factory=list)  # versions 0+
