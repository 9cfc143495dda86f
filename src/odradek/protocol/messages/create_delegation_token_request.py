"""CreateDelegationTokenRequest: generated from definitions/api/CreateDelegationTokenRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class CreatableRenewers:
    principal_type: str = ""  # versions 0+
    principal_name: str = ""  # versions 0+


@dataclass(slots=True)
class CreateDelegationTokenRequest:
    SPEC: ClassVar[str] = "api/CreateDelegationTokenRequest"
    API_KEY: ClassVar[int] = 38
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    owner_principal_type: str | None = ""  # versions 3+, nullable 3+
    owner_principal_name: str | None = ""  # versions 3+, nullable 3+
    renewers: list[CreatableRenewers] = field(default_factory=list)  # versions 0+
    max_lifetime_ms: int = 0  # versions 0+
