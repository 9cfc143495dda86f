"""BrokerHeartbeatRequest: generated from definitions/api/BrokerHeartbeatRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import Uuid


@dataclass(slots=True)
class BrokerHeartbeatRequest:
    SPEC: ClassVar[str] = "api/BrokerHeartbeatRequest"
    API_KEY: ClassVar[int] = 63
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    broker_id: int = 0  # versions 0+, brokerId
    broker_epoch: int = -1  # versions 0+
    current_metadata_offset: int = 0  # versions 0+
    want_fence: bool = False  # versions 0+
    want_shut_down: bool = False  # versions 0+
    offline_log_dirs: list[Uuid] = field(default_factory=list)  # versions 1+, tag 0
