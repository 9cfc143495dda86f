"""DescribeDelegationTokenRequest: generated from definitions/api/DescribeDelegationTokenRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DescribeDelegationTokenOwner:
    principal_type: str = ""  # versions 0+
    principal_name: str = ""  # versions 0+


@dataclass(slots=True)
class DescribeDelegationTokenRequest:
    SPEC: ClassVar[str] = "api/DescribeDelegationTokenRequest"
    API_KEY: ClassVar[int] = 41
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    # versions 0+, nullable 0+
    owners: list[DescribeDelegationTokenOwner] | None = field(default_factory=list)
