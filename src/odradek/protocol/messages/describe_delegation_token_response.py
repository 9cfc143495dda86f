"""DescribeDelegationTokenResponse: generated from definitions/api/DescribeDelegationTokenResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DescribedDelegationTokenRenewer:
    principal_type: str = ""  # versions 0+
    principal_name: str = ""  # versions 0+


@dataclass(slots=True)
class DescribedDelegationToken:
    principal_type: str = ""  # versions 0+
    principal_name: str = ""  # versions 0+
    token_requester_principal_type: str = ""  # versions 3+
    token_requester_principal_name: str = ""  # versions 3+
    issue_timestamp: int = 0  # versions 0+
    expiry_timestamp: int = 0  # versions 0+
    max_timestamp: int = 0  # versions 0+
    token_id: str = ""  # versions 0+
    hmac: bytes = b""  # versions 0+
    renewers: list[DescribedDelegationTokenRenewer] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeDelegationTokenResponse:
    SPEC: ClassVar[str] = "api/DescribeDelegationTokenResponse"
    API_KEY: ClassVar[int] = 41
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 2

    error_code: int = 0  # versions 0+
    tokens: list[DescribedDelegationToken] = field(default_factory=list)  # versions 0+
    throttle_time_ms: int = 0  # versions 0+
