"""BrokerRegistrationRequest: generated from definitions/api/BrokerRegistrationRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class Listener:
    name: str = ""  # versions 0+
    host: str = ""  # versions 0+
    port: int = 0  # versions 0+
    security_protocol: int = 0  # versions 0+


@dataclass(slots=True)
class Feature:
    name: str = ""  # versions 0+
    min_supported_version: int = 0  # versions 0+
    max_supported_version: int = 0  # versions 0+


@dataclass(slots=True)
class BrokerRegistrationRequest:
    SPEC: ClassVar[str] = "api/BrokerRegistrationRequest"
    API_KEY: ClassVar[int] = 62
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 0

    broker_id: int = 0  # versions 0+, brokerId
    cluster_id: str = ""  # versions 0+
    incarnation_id: Uuid = ZERO_UUID  # versions 0+
    listeners: list[Listener] = field(default_factory=list)  # versions 0+
    features: list[Feature] = field(default_factory=list)  # versions 0+
    rack: str | None = ""  # versions 0+, nullable 0+
    is_migrating_zk_broker: bool = False  # versions 1+
    log_dirs: list[Uuid] = field(default_factory=list)  # versions 2+
    previous_broker_epoch: int = -1  # versions 3+
