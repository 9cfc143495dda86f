"""ConsumerGroupMetadataValue: generated from definitions/group/ConsumerGroupMetadataValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ConsumerGroupMetadataValue:
    SPEC: ClassVar[str] = "group/ConsumerGroupMetadataValue"
    API_KEY: ClassVar[int] = 3
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    epoch: int = 0  # versions 0+
    metadata_hash: int = 0  # versions 0+, tag 0
