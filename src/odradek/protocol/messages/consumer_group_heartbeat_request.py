"""ConsumerGroupHeartbeatRequest: generated from definitions/api/ConsumerGroupHeartbeatRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class TopicPartitions:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ConsumerGroupHeartbeatRequest:
    SPEC: ClassVar[str] = "api/ConsumerGroupHeartbeatRequest"
    API_KEY: ClassVar[int] = 68
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_id: str = ""  # versions 0+, groupId
    member_id: str = ""  # versions 0+
    member_epoch: int = 0  # versions 0+
    instance_id: str | None = None  # versions 0+, nullable 0+
    rack_id: str | None = None  # versions 0+, nullable 0+
    rebalance_timeout_ms: int = -1  # versions 0+
    subscribed_topic_names: list[str] | None = None  # versions 0+, nullable 0+, topicName
    subscribed_topic_regex: str | None = None  # versions 1+, nullable 1+
    server_assignor: str | None = None  # versions 0+, nullable 0+
    topic_partitions: list[TopicPartitions] | None = None  # versions 0+, nullable 0+
