"""StreamsGroupMetadataKey: generated from definitions/group/StreamsGroupMetadataKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class StreamsGroupMetadataKey:
    SPEC: ClassVar[str] = "group/StreamsGroupMetadataKey"
    API_KEY: ClassVar[int] = 17
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group_id: str = ""  # versions 0
