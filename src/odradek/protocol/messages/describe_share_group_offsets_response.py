"""DescribeShareGroupOffsetsResponse: generated from definitions/api/DescribeShareGroupOffsetsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = 0  # versions 0+
    start_offset: int = 0  # versions 0+
    leader_epoch: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = ""  # versions 0+, topicName
    topic_id: Uuid = ZERO_UUID  # versions 0+
    # versions 0+
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(default_factory=list)


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = ""  # versions 0+, groupId
    # versions 0+
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(default_factory=list)
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+


@dataclass(slots=True)
class DescribeShareGroupOffsetsResponse:
    SPEC: ClassVar[str] = "api/DescribeShareGroupOffsetsResponse"
    API_KEY: ClassVar[int] = 90
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    # versions 0+
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(default_factory=list)
