"""DrainBrokerRequest: generated from definitions/odradek/DrainBrokerRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class DrainBrokerRequest:
    SPEC: ClassVar[str] = "odradek/DrainBrokerRequest"
    API_KEY: ClassVar[int] = 20003
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    broker_id: int = 0  # versions 0+, brokerId
    drained: bool = False  # versions 0+
