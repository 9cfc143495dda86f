"""EndTxnMarker: generated from definitions/api/EndTxnMarker.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class EndTxnMarker:
    SPEC: ClassVar[str] = "api/EndTxnMarker"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    coordinator_epoch: int = 0  # versions 0+
