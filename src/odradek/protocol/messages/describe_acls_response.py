"""DescribeAclsResponse: generated from definitions/api/DescribeAclsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class AclDescription:
    principal: str = ""  # versions 0+
    host: str = ""  # versions 0+
    operation: int = 0  # versions 0+
    permission_type: int = 0  # versions 0+


@dataclass(slots=True)
class DescribeAclsResource:
    resource_type: int = 0  # versions 0+
    resource_name: str = ""  # versions 0+
    pattern_type: int = 3  # versions 1+
    acls: list[AclDescription] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeAclsResponse:
    SPEC: ClassVar[str] = "api/DescribeAclsResponse"
    API_KEY: ClassVar[int] = 29
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 0+, nullable 0+
    resources: list[DescribeAclsResource] = field(default_factory=list)  # versions 0+
