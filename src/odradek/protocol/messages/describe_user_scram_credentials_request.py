"""DescribeUserScramCredentialsRequest: generated from definitions/api/DescribeUserScramCredentialsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class UserName:
    name: str = ""  # versions 0+


@dataclass(slots=True)
class DescribeUserScramCredentialsRequest:
    SPEC: ClassVar[str] = "api/DescribeUserScramCredentialsRequest"
    API_KEY: ClassVar[int] = 50
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    users: list[UserName] | None = field(default_factory=list)  # versions 0+, nullable 0+
