"""MetadataFeedRequest: generated from definitions/odradek/MetadataFeedRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class MetadataFeedRequest:
    SPEC: ClassVar[str] = "odradek/MetadataFeedRequest"
    API_KEY: ClassVar[int] = 20000
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    cluster_id: str = ""  # versions 0+
    broker_id: int = 0  # versions 0+, brokerId
    broker_epoch: int = -1  # versions 0+
    controller_epoch: int = -1  # versions 0+
    metadata_offset: int = -1  # versions 0+
    max_wait_ms: int = 0  # versions 0+
    max_bytes: int = 0  # versions 0+
