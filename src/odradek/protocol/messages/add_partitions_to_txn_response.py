"""AddPartitionsToTxnResponse: generated from definitions/api/AddPartitionsToTxnResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class AddPartitionsToTxnPartitionResult:
    partition_index: int = 0  # versions 0+
    partition_error_code: int = 0  # versions 0+


@dataclass(slots=True)
class AddPartitionsToTxnTopicResult:
    name: str = ""  # versions 0+, topicName
    # versions 0+
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(default_factory=list)


@dataclass(slots=True)
class AddPartitionsToTxnResult:
    transactional_id: str = ""  # versions 4+, transactionalId
    topic_results: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)  # versions 4+


@dataclass(slots=True)
class AddPartitionsToTxnResponse:
    SPEC: ClassVar[str] = "api/AddPartitionsToTxnResponse"
    API_KEY: ClassVar[int] = 24
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 4+
    # versions 4+
    results_by_transaction: list[AddPartitionsToTxnResult] = field(default_factory=list)
    # versions 0-3
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)
