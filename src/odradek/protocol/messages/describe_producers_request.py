"""DescribeProducersRequest: generated from definitions/api/DescribeProducersRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TopicRequest:
    name: str = ""  # versions 0+, topicName
    partition_indexes: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeProducersRequest:
    SPEC: ClassVar[str] = "api/DescribeProducersRequest"
    API_KEY: ClassVar[int] = 61
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    topics: list[TopicRequest] = field(default_factory=list)  # versions 0+
