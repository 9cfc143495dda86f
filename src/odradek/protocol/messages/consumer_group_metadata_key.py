"""ConsumerGroupMetadataKey: generated from definitions/group/ConsumerGroupMetadataKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ConsumerGroupMetadataKey:
    SPEC: ClassVar[str] = "group/ConsumerGroupMetadataKey"
    API_KEY: ClassVar[int] = 3
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group_id: str = ""  # versions 0
