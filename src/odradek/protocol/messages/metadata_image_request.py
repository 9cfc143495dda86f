"""MetadataImageRequest: generated from definitions/odradek/MetadataImageRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class MetadataImageRequest:
    SPEC: ClassVar[str] = "odradek/MetadataImageRequest"
    API_KEY: ClassVar[int] = 20001
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    cluster_id: str = ""  # versions 0+
    broker_id: int = 0  # versions 0+, brokerId
    broker_epoch: int = -1  # versions 0+
    image_controller_epoch: int = -1  # versions 0+
    image_metadata_offset: int = -1  # versions 0+
    position: int = 0  # versions 0+
    max_bytes: int = 0  # versions 0+
