"""VotersRecord: generated from definitions/api/VotersRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class Endpoint:
    name: str = ""  # versions 0+
    host: str = ""  # versions 0+
    port: int = 0  # versions 0+


@dataclass(slots=True)
class KRaftVersionFeature:
    min_supported_version: int = 0  # versions 0+
    max_supported_version: int = 0  # versions 0+


@dataclass(slots=True)
class Voter:
    voter_id: int = 0  # versions 0+, brokerId
    voter_directory_id: Uuid = ZERO_UUID  # versions 0+
    endpoints: list[Endpoint] = field(default_factory=list)  # versions 0+
    # versions 0+
    k_raft_version_feature: KRaftVersionFeature = field(default_factory=KRaftVersionFeature)


@dataclass(slots=True)
class VotersRecord:
    SPEC: ClassVar[str] = "api/VotersRecord"
    API_KEY: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    version: int = 0  # versions 0+
    voters: list[Voter] = field(default_factory=list)  # versions 0+
