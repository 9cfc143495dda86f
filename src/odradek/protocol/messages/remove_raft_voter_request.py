"""RemoveRaftVoterRequest: generated from definitions/api/RemoveRaftVoterRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class RemoveRaftVoterRequest:
    SPEC: ClassVar[str] = "api/RemoveRaftVoterRequest"
    API_KEY: ClassVar[int] = 81
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    cluster_id: str | None = ""  # versions 0+, nullable 0+
    voter_id: int = 0  # versions 0+
    voter_directory_id: Uuid = ZERO_UUID  # versions 0+
