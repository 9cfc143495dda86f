"""RemoveTopicRecord: generated from definitions/metadata/RemoveTopicRecord.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class RemoveTopicRecord:
    SPEC: ClassVar[str] = "metadata/RemoveTopicRecord"
    API_KEY: ClassVar[int] = 9
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    topic_id: Uuid = ZERO_UUID  # versions 0+
