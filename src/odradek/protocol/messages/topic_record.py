"""TopicRecord: generated from definitions/metadata/TopicRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class TopicRecord:
    SPEC: ClassVar[str] = "metadata/TopicRecord"
    API_KEY: ClassVar[int] = 2
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    name: str = ""  # versions 0+, topicName
    topic_id: Uuid = ZERO_UUID  # versions 0+
