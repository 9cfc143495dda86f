"""TxnOffsetCommitResponse: generated from definitions/api/TxnOffsetCommitResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TxnOffsetCommitResponsePartition:
    partition_index: int = 0  # versions 0+
    error_code: int = 0  # versions 0+


@dataclass(slots=True)
class TxnOffsetCommitResponseTopic:
    name: str = ""  # versions 0+, topicName
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class TxnOffsetCommitResponse:
    SPEC: ClassVar[str] = "api/TxnOffsetCommitResponse"
    API_KEY: ClassVar[int] = 28
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0  # versions 0+
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)  # versions 0+
