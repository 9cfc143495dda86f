"""TopicDeletionRecord: generated from definitions/odradek/TopicDeletionRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class TopicDeletionRecord:
    SPEC: ClassVar[str] = "odradek/TopicDeletionRecord"
    API_KEY: ClassVar[int] = 20100
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    topic_id: Uuid = ZERO_UUID  # versions 0+
    name: str = ""  # versions 0+, topicName
    brokers: list[int] = field(default_factory=list)  # versions 0+, brokerId
