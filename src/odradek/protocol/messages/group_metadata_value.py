"""GroupMetadataValue: generated from definitions/group/GroupMetadataValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class MemberMetadata:
    member_id: str = ""  # versions 0+
    group_instance_id: str | None = None  # versions 3+, nullable 3+
    client_id: str = ""  # versions 0+
    client_host: str = ""  # versions 0+
    rebalance_timeout: int = -1  # versions 1+
    session_timeout: int = 0  # versions 0+
    subscription: bytes = b""  # versions 0+
    assignment: bytes = b""  # versions 0+


@dataclass(slots=True)
class GroupMetadataValue:
    SPEC: ClassVar[str] = "group/GroupMetadataValue"
    API_KEY: ClassVar[int] = 2
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 4

    protocol_type: str = ""  # versions 0+
    generation: int = 0  # versions 0+
    protocol: str | None = ""  # versions 0+, nullable 0+
    leader: str | None = ""  # versions 0+, nullable 0+
    current_state_timestamp: int = -1  # versions 2+
    members: list[MemberMetadata] = field(default_factory=list)  # versions 0+
