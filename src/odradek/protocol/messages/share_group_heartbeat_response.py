"""ShareGroupHeartbeatResponse: generated from definitions/api/ShareGroupHeartbeatResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class TopicPartitions:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Assignment:
    topic_partitions: list[TopicPartitions] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ShareGroupHeartbeatResponse:
    SPEC: ClassVar[str] = "api/ShareGroupHeartbeatResponse"
    API_KEY: ClassVar[int] = 76
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    member_id: str | None = None  # versions 0+, nullable 0+
    member_epoch: int = 0  # versions 0+
    heartbeat_interval_ms: int = 0  # versions 0+
    assignment: Assignment | None = None  # versions 0+, nullable 0+
