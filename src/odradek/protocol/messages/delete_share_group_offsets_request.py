"""DeleteShareGroupOffsetsRequest: generated from definitions/api/DeleteShareGroupOffsetsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = ""  # versions 0+, topicName


@dataclass(slots=True)
class DeleteShareGroupOffsetsRequest:
    SPEC: ClassVar[str] = "api/DeleteShareGroupOffsetsRequest"
    API_KEY: ClassVar[int] = 92
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_id: str = ""  # versions 0+, groupId
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(default_factory=list)  # versions 0+
