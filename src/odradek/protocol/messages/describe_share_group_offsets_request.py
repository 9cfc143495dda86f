"""DescribeShareGroupOffsetsRequest: generated from definitions/api/DescribeShareGroupOffsetsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = ""  # versions 0+, topicName
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = ""  # versions 0+, groupId
    # versions 0+, nullable 0+
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(default_factory=list)


@dataclass(slots=True)
class DescribeShareGroupOffsetsRequest:
    SPEC: ClassVar[str] = "api/DescribeShareGroupOffsetsRequest"
    API_KEY: ClassVar[int] = 90
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(default_factory=list)  # versions 0+
