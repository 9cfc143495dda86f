"""ShareGroupMetadataValue: generated from definitions/group/ShareGroupMetadataValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ShareGroupMetadataValue:
    SPEC: ClassVar[str] = "group/ShareGroupMetadataValue"
    API_KEY: ClassVar[int] = 11
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    epoch: int = 0  # versions 0+
    metadata_hash: int = 0  # versions 0+
