"""MetadataRequest: generated from definitions/api/MetadataRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class MetadataRequestTopic:
    topic_id: Uuid = ZERO_UUID  # versions 10+
    name: str | None = ""  # versions 0+, nullable 10+, topicName


@dataclass(slots=True)
class MetadataRequest:
    SPEC: ClassVar[str] = "api/MetadataRequest"
    API_KEY: ClassVar[int] = 3
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9

    # versions 0+, nullable 1+
    topics: list[MetadataRequestTopic] | None = field(default_factory=list)
    allow_auto_topic_creation: bool = True  # versions 4+
    include_cluster_authorized_operations: bool = False  # versions 8-10
    include_topic_authorized_operations: bool = False  # versions 8+
