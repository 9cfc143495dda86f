"""FinishDeletionsResponse: generated from definitions/odradek/FinishDeletionsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class FinishDeletionsResponse:
    SPEC: ClassVar[str] = "odradek/FinishDeletionsResponse"
    API_KEY: ClassVar[int] = 20002
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    error_code: int = 0  # versions 0+
