"""ApiVersionsRequest: generated from definitions/api/ApiVersionsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ApiVersionsRequest:
    SPEC: ClassVar[str] = "api/ApiVersionsRequest"
    API_KEY: ClassVar[int] = 18
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    client_software_name: str = ""  # versions 3+
    client_software_version: str = ""  # versions 3+
