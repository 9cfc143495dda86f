"""HeartbeatRequest: generated from definitions/api/HeartbeatRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class HeartbeatRequest:
    SPEC: ClassVar[str] = "api/HeartbeatRequest"
    API_KEY: ClassVar[int] = 12
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    group_id: str = ""  # versions 0+, groupId
    generation_id: int = 0  # versions 0+
    member_id: str = ""  # versions 0+
    group_instance_id: str | None = None  # versions 3+, nullable 3+
