"""ShareGroupMemberMetadataValue: generated from definitions/group/ShareGroupMemberMetadataValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ShareGroupMemberMetadataValue:
    SPEC: ClassVar[str] = "group/ShareGroupMemberMetadataValue"
    API_KEY: ClassVar[int] = 10
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    rack_id: str | None = ""  # versions 0+, nullable 0+
    client_id: str = ""  # versions 0+
    client_host: str = ""  # versions 0+
    subscribed_topic_names: list[str] = field(default_factory=list)  # versions 0+
