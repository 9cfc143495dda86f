"""ControllerRegistrationRequest: generated from definitions/api/ControllerRegistrationRequest.json, do not edit."""

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
class ControllerRegistrationRequest:
    SPEC: ClassVar[str] = "api/ControllerRegistrationRequest"
    API_KEY: ClassVar[int] = 70
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    controller_id: int = 0  # versions 0+
    incarnation_id: Uuid = ZERO_UUID  # versions 0+
    zk_migration_ready: bool = False  # versions 0+
    listeners: list[Listener] = field(default_factory=list)  # versions 0+
    features: list[Feature] = field(default_factory=list)  # versions 0+
