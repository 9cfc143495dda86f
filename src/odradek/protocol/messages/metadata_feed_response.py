"""MetadataFeedResponse: generated from definitions/odradek/MetadataFeedResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class FramedRecord:
    frame: bytes = b""  # versions 0+


@dataclass(slots=True)
class FeedDelta:
    controller_epoch: int = 0  # versions 0+
    metadata_offset: int = 0  # versions 0+
    records: list[FramedRecord] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class MetadataFeedResponse:
    SPEC: ClassVar[str] = "odradek/MetadataFeedResponse"
    API_KEY: ClassVar[int] = 20000
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    error_code: int = 0  # versions 0+
    controller_id: int = -1  # versions 0+, brokerId
    controller_epoch: int = -1  # versions 0+
    metadata_offset: int = -1  # versions 0+
    image_required: bool = False  # versions 0+
    deltas: list[FeedDelta] = field(default_factory=list)  # versions 0+
