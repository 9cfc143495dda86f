"""DescribeLogDirsRequest: generated from definitions/api/DescribeLogDirsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DescribableLogDirTopic:
    topic: str = ""  # versions 0+, topicName
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeLogDirsRequest:
    SPEC: ClassVar[str] = "api/DescribeLogDirsRequest"
    API_KEY: ClassVar[int] = 35
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 2

    # versions 0+, nullable 0+
    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)
