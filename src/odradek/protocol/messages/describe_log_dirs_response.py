"""DescribeLogDirsResponse: generated from definitions/api/DescribeLogDirsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DescribeLogDirsPartition:
    partition_index: int = 0  # versions 0+
    partition_size: int = 0  # versions 0+
    offset_lag: int = 0  # versions 0+
    is_future_key: bool = False  # versions 0+


@dataclass(slots=True)
class DescribeLogDirsTopic:
    name: str = ""  # versions 0+, topicName
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeLogDirsResult:
    error_code: int = 0  # versions 0+
    log_dir: str = ""  # versions 0+
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)  # versions 0+
    total_bytes: int = -1  # versions 4+
    usable_bytes: int = -1  # versions 4+


@dataclass(slots=True)
class DescribeLogDirsResponse:
    SPEC: ClassVar[str] = "api/DescribeLogDirsResponse"
    API_KEY: ClassVar[int] = 35
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 2

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 3+
    results: list[DescribeLogDirsResult] = field(default_factory=list)  # versions 0+
