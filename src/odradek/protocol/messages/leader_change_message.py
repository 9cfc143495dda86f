"""LeaderChangeMessage: generated from definitions/api/LeaderChangeMessage.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class Voter:
    voter_id: int = 0  # versions 0+
    voter_directory_id: Uuid = ZERO_UUID  # versions 1+


@dataclass(slots=True)
class LeaderChangeMessage:
    SPEC: ClassVar[str] = "api/LeaderChangeMessage"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    version: int = 0  # versions 0+
    leader_id: int = 0  # versions 0+, brokerId
    voters: list[Voter] = field(default_factory=list)  # versions 0+
    granting_voters: list[Voter] = field(default_factory=list)  # versions 0+
