"""CreateAclsRequest: generated from definitions/api/CreateAclsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class AclCreation:
    resource_type: int = 0  # versions 0+
    resource_name: str = ""  # versions 0+
    resource_pattern_type: int = 3  # versions 1+
    principal: str = ""  # versions 0+
    host: str = ""  # versions 0+
    operation: int = 0  # versions 0+
    permission_type: int = 0  # versions 0+


@dataclass(slots=True)
class CreateAclsRequest:
    SPEC: ClassVar[str] = "api/CreateAclsRequest"
    API_KEY: ClassVar[int] = 30
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    creations: list[AclCreation] = field(default_factory=list)  # versions 0+
