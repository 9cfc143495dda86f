"""ConsumerGroupMemberMetadataValue: generated from definitions/group/ConsumerGroupMemberMetadataValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ClassicProtocol:
    name: str = ""  # versions 0+
    metadata: bytes = b""  # versions 0+


@dataclass(slots=True)
class ClassicMemberMetadata:
    session_timeout_ms: int = 0  # versions 0+
    supported_protocols: list[ClassicProtocol] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ConsumerGroupMemberMetadataValue:
    SPEC: ClassVar[str] = "group/ConsumerGroupMemberMetadataValue"
    API_KEY: ClassVar[int] = 5
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    instance_id: str | None = ""  # versions 0+, nullable 0+
    rack_id: str | None = ""  # versions 0+, nullable 0+
    client_id: str = ""  # versions 0+
    client_host: str = ""  # versions 0+
    subscribed_topic_names: list[str] = field(default_factory=list)  # versions 0+
    subscribed_topic_regex: str | None = ""  # versions 0+, nullable 0+
    rebalance_timeout_ms: int = -1  # versions 0+
    server_assignor: str | None = ""  # versions 0+, nullable 0+
    # versions 0+, nullable 0+, tag 0
    classic_member_metadata: ClassicMemberMetadata | None = field(
        default_factory=ClassicMemberMetadata
    )
