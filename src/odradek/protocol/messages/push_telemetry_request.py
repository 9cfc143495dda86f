"""PushTelemetryRequest: generated from definitions/api/PushTelemetryRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class PushTelemetryRequest:
    SPEC: ClassVar[str] = "api/PushTelemetryRequest"
    API_KEY: ClassVar[int] = 72
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    client_instance_id: Uuid = ZERO_UUID  # versions 0+
    subscription_id: int = 0  # versions 0+
    terminating: bool = False  # versions 0+
    compression_type: int = 0  # versions 0+
    metrics: bytes = b""  # versions 0+
