"""AlterUserScramCredentialsRequest: generated from definitions/api/AlterUserScramCredentialsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ScramCredentialDeletion:
    name: str = ""  # versions 0+
    mechanism: int = 0  # versions 0+


@dataclass(slots=True)
class ScramCredentialUpsertion:
    name: str = ""  # versions 0+
    mechanism: int = 0  # versions 0+
    iterations: int = 0  # versions 0+
    salt: bytes = b""  # versions 0+
    salted_password: bytes = b""  # versions 0+


@dataclass(slots=True)
class AlterUserScramCredentialsRequest:
    SPEC: ClassVar[str] = "api/AlterUserScramCredentialsRequest"
    API_KEY: ClassVar[int] = 51
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    deletions: list[ScramCredentialDeletion] = field(default_factory=list)  # versions 0+
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)  # versions 0+
