"""EnvelopeRequest: generated from definitions/api/EnvelopeRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class EnvelopeRequest:
    SPEC: ClassVar[str] = "api/EnvelopeRequest"
    API_KEY: ClassVar[int] = 58
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    request_data: bytes = b""  # versions 0+
    request_principal: bytes | None = b""  # versions 0+, nullable 0+
    client_host_address: bytes = b""  # versions 0+
    listener_name: str = ""  # versions 0+, tag 10000, not in Kafka
