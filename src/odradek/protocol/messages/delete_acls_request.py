"""DeleteAclsRequest: generated from definitions/api/DeleteAclsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DeleteAclsFilter:
    resource_type_filter: int = 0  # versions 0+
    resource_name_filter: str | None = ""  # versions 0+, nullable 0+
    pattern_type_filter: int = 3  # versions 1+
    principal_filter: str | None = ""  # versions 0+, nullable 0+
    host_filter: str | None = ""  # versions 0+, nullable 0+
    operation: int = 0  # versions 0+
    permission_type: int = 0  # versions 0+


@dataclass(slots=True)
class DeleteAclsRequest:
    SPEC: ClassVar[str] = "api/DeleteAclsRequest"
    API_KEY: ClassVar[int] = 31
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    filters: list[DeleteAclsFilter] = field(default_factory=list)  # versions 0+
