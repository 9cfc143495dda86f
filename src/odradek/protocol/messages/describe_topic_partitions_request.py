"""DescribeTopicPartitionsRequest: generated from definitions/api/DescribeTopicPartitionsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TopicRequest:
    name: str = ""  # versions 0+, topicName


@dataclass(slots=True)
class Cursor:
    topic_name: str = ""  # versions 0+, topicName
    partition_index: int = 0  # versions 0+


@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    SPEC: ClassVar[str] = "api/DescribeTopicPartitionsRequest"
    API_KEY: ClassVar[int] = 75
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    topics: list[TopicRequest] = field(default_factory=list)  # versions 0+
    response_partition_limit: int = 2000  # versions 0+
    cursor: Cursor | None = None  # versions 0+, nullable 0+
