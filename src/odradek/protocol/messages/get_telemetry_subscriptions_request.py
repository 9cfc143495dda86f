"""GetTelemetrySubscriptionsRequest: generated from definitions/api/GetTelemetrySubscriptionsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class GetTelemetrySubscriptionsRequest:
    SPEC: ClassVar[str] = "api/GetTelemetrySubscriptionsRequest"
    API_KEY: ClassVar[int] = 71
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    client_instance_id: Uuid = ZERO_UUID  # versions 0+
