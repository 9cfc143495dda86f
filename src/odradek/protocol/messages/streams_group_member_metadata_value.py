"""StreamsGroupMemberMetadataValue: generated from definitions/group/StreamsGroupMemberMetadataValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class Endpoint:
    host: str = ""  # versions 0+
    port: int = 0  # versions 0+


@dataclass(slots=True)
class KeyValue:
    key: str = ""  # versions 0+
    value: str = ""  # versions 0+


@dataclass(slots=True)
class StreamsGroupMemberMetadataValue:
    SPEC: ClassVar[str] = "group/StreamsGroupMemberMetadataValue"
    API_KEY: ClassVar[int] = 19
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    instance_id: str | None = ""  # versions 0+, nullable 0+
    rack_id: str | None = ""  # versions 0+, nullable 0+
    client_id: str = ""  # versions 0+
    client_host: str = ""  # versions 0+
    rebalance_timeout_ms: int = -1  # versions 0+
    topology_epoch: int = 0  # versions 0+
    process_id: str = ""  # versions 0+
    user_endpoint: Endpoint | None = None  # versions 0+, nullable 0+
    client_tags: list[KeyValue] = field(default_factory=list)  # versions 0+
