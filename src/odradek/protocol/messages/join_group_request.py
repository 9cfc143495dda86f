"""JoinGroupRequest: generated from definitions/api/JoinGroupRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class JoinGroupRequestProtocol:
    name: str = ""  # versions 0+
    metadata: bytes = b""  # versions 0+


@dataclass(slots=True)
class JoinGroupRequest:
    SPEC: ClassVar[str] = "api/JoinGroupRequest"
    API_KEY: ClassVar[int] = 11
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 9
    FLEXIBLE_FROM: ClassVar[int] = 6

    group_id: str = ""  # versions 0+, groupId
    session_timeout_ms: int = 0  # versions 0+
    rebalance_timeout_ms: int = -1  # versions 1+
    member_id: str = ""  # versions 0+
    group_instance_id: str | None = None  # versions 5+, nullable 5+
    protocol_type: str = ""  # versions 0+
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)  # versions 0+
    reason: str | None = None  # versions 8+, nullable 8+
