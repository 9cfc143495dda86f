"""AddRaftVoterRequest: generated from definitions/api/AddRaftVoterRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class Listener:
    name: str = ""  # versions 0+
    host: str = ""  # versions 0+
    port: int = 0  # versions 0+


@dataclass(slots=True)
class AddRaftVoterRequest:
    SPEC: ClassVar[str] = "api/AddRaftVoterRequest"
    API_KEY: ClassVar[int] = 80
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    cluster_id: str | None = ""  # versions 0+, nullable 0+
    timeout_ms: int = 0  # versions 0+
    voter_id: int = 0  # versions 0+
    voter_directory_id: Uuid = ZERO_UUID  # versions 0+
    listeners: list[Listener] = field(default_factory=list)  # versions 0+
