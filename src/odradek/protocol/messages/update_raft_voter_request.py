"""UpdateRaftVoterRequest: generated from definitions/api/UpdateRaftVoterRequest.json, do not edit."""

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
class KRaftVersionFeature:
    min_supported_version: int = 0  # versions 0+
    max_supported_version: int = 0  # versions 0+


@dataclass(slots=True)
class UpdateRaftVoterRequest:
    SPEC: ClassVar[str] = "api/UpdateRaftVoterRequest"
    API_KEY: ClassVar[int] = 82
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    cluster_id: str | None = ""  # versions 0+, nullable 0+
    current_leader_epoch: int = 0  # versions 0+
    voter_id: int = 0  # versions 0+
    voter_directory_id: Uuid = ZERO_UUID  # versions 0+
    listeners: list[Listener] = field(default_factory=list)  # versions 0+
    # versions 0+
    k_raft_version_feature: KRaftVersionFeature = field(default_factory=KRaftVersionFeature)
