"""SyncGroupRequest: generated from definitions/api/SyncGroupRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class SyncGroupRequestAssignment:
    member_id: str = ""  # versions 0+
    assignment: bytes = b""  # versions 0+


@dataclass(slots=True)
class SyncGroupRequest:
    SPEC: ClassVar[str] = "api/SyncGroupRequest"
    API_KEY: ClassVar[int] = 14
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 4

    group_id: str = ""  # versions 0+, groupId
    generation_id: int = 0  # versions 0+
    member_id: str = ""  # versions 0+
    group_instance_id: str | None = None  # versions 3+, nullable 3+
    protocol_type: str | None = None  # versions 5+, nullable 5+
    protocol_name: str | None = None  # versions 5+, nullable 5+
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)  # versions 0+
