"""ShareGroupMetadataKey: generated from definitions/group/ShareGroupMetadataKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ShareGroupMetadataKey:
    SPEC: ClassVar[str] = "group/ShareGroupMetadataKey"
    API_KEY: ClassVar[int] = 11
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group_id: str = ""  # versions 0
