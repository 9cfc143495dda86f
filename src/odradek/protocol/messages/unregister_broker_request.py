"""UnregisterBrokerRequest: generated from definitions/api/UnregisterBrokerRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class UnregisterBrokerRequest:
    SPEC: ClassVar[str] = "api/UnregisterBrokerRequest"
    API_KEY: ClassVar[int] = 64
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    broker_id: int = 0  # versions 0+, brokerId
