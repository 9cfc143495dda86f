"""AllocateProducerIdsResponse: generated from definitions/api/AllocateProducerIdsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class AllocateProducerIdsResponse:
    SPEC: ClassVar[str] = "api/AllocateProducerIdsResponse"
    API_KEY: ClassVar[int] = 67
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    producer_id_start: int = 0  # versions 0+, producerId
    producer_id_len: int = 0  # versions 0+
