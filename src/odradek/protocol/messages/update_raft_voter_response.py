"""UpdateRaftVoterResponse: generated from definitions/api/UpdateRaftVoterResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class CurrentLeader:
    leader_id: int = -1  # versions 0+, brokerId
    leader_epoch: int = -1  # versions 0+
    host: str = ""  # versions 0+
    port: int = 0  # versions 0+


@dataclass(slots=True)
class UpdateRaftVoterResponse:
    SPEC: ClassVar[str] = "api/UpdateRaftVoterResponse"
    API_KEY: ClassVar[int] = 82
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    current_leader: CurrentLeader | None = None  # versions 0+, tag 0
