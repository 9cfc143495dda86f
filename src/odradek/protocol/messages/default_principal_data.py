"""DefaultPrincipalData: generated from definitions/api/DefaultPrincipalData.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class DefaultPrincipalData:
    SPEC: ClassVar[str] = "api/DefaultPrincipalData"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    type: str = ""  # versions 0+
    name: str = ""  # versions 0+
    token_authenticated: bool = False  # versions 0+
