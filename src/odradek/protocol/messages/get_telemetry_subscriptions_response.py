"""GetTelemetrySubscriptionsResponse: generated from definitions/api/GetTelemetrySubscriptionsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class GetTelemetrySubscriptionsResponse:
    SPEC: ClassVar[str] = "api/GetTelemetrySubscriptionsResponse"
    API_KEY: ClassVar[int] = 71
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    client_instance_id: Uuid = ZERO_UUID  # versions 0+
    subscription_id: int = 0  # versions 0+
    accepted_compression_types: list[int] = field(default_factory=list)  # versions 0+
    push_interval_ms: int = 0  # versions 0+
    telemetry_max_bytes: int = 0  # versions 0+
    delta_temporality: bool = False  # versions 0+
    requested_metrics: list[str] = field(default_factory=list)  # versions 0+
