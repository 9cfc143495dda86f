"""ShareGroupHeartbeatRequest: generated from definitions/api/ShareGroupHeartbeatRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ShareGroupHeartbeatRequest:
    SPEC: ClassVar[str] = "api/ShareGroupHeartbeatRequest"
    API_KEY: ClassVar[int] = 76
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_id: str = ""  # versions 0+, groupId
    member_id: str = ""  # versions 0+
    member_epoch: int = 0  # versions 0+
    rack_id: str | None = None  # versions 0+, nullable 0+
    subscribed_topic_names: list[str] | None = None  # versions 0+, nullable 0+, topicName
