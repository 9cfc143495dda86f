"""DescribeGroupsResponse: generated from definitions/api/DescribeGroupsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DescribedGroupMember:
    member_id: str = ""  # versions 0+
    group_instance_id: str | None = None  # versions 4+, nullable 4+
    client_id: str = ""  # versions 0+
    client_host: str = ""  # versions 0+
    member_metadata: bytes = b""  # versions 0+
    member_assignment: bytes = b""  # versions 0+


@dataclass(slots=True)
class DescribedGroup:
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 6+, nullable 6+
    group_id: str = ""  # versions 0+, groupId
    group_state: str = ""  # versions 0+
    protocol_type: str = ""  # versions 0+
    protocol_data: str = ""  # versions 0+
    members: list[DescribedGroupMember] = field(default_factory=list)  # versions 0+
    authorized_operations: int = -2147483648  # versions 3+


@dataclass(slots=True)
class DescribeGroupsResponse:
    SPEC: ClassVar[str] = "api/DescribeGroupsResponse"
    API_KEY: ClassVar[int] = 15
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 5

    throttle_time_ms: int = 0  # versions 1+
    groups: list[DescribedGroup] = field(default_factory=list)  # versions 0+
