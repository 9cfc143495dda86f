"""RegisterBrokerRecord: generated from definitions/metadata/RegisterBrokerRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class BrokerEndpoint:
    name: str = ""  # versions 0+
    host: str = ""  # versions 0+
    port: int = 0  # versions 0+
    security_protocol: int = 0  # versions 0+


@dataclass(slots=True)
class BrokerFeature:
    name: str = ""  # versions 0+
    min_supported_version: int = 0  # versions 0+
    max_supported_version: int = 0  # versions 0+


@dataclass(slots=True)
class RegisterBrokerRecord:
    SPEC: ClassVar[str] = "metadata/RegisterBrokerRecord"
    API_KEY: ClassVar[int] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 3
    FLEXIBLE_FROM: ClassVar[int] = 0

    broker_id: int = 0  # versions 0+, brokerId
    is_migrating_zk_broker: bool = False  # versions 2+
    incarnation_id: Uuid = ZERO_UUID  # versions 0+
    broker_epoch: int = 0  # versions 0+
    end_points: list[BrokerEndpoint] = field(default_factory=list)  # versions 0+
    features: list[BrokerFeature] = field(default_factory=list)  # versions 0+
    rack: str | None = ""  # versions 0+, nullable 0+
    fenced: bool = True  # versions 0+
    in_controlled_shutdown: bool = False  # versions 1+
    log_dirs: list[Uuid] = field(default_factory=list)  # versions 3+, tag 0
    boot_id: str = ""  # versions 0+, tag 10000, not in Kafka
    drained: bool = False  # versions 0+, tag 10001, not in Kafka
