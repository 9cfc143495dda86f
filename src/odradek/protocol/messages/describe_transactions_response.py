"""DescribeTransactionsResponse: generated from definitions/api/DescribeTransactionsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TopicData:
    topic: str = ""  # versions 0+, topicName
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class TransactionState:
    error_code: int = 0  # versions 0+
    transactional_id: str = ""  # versions 0+, transactionalId
    transaction_state: str = ""  # versions 0+
    transaction_timeout_ms: int = 0  # versions 0+
    transaction_start_time_ms: int = 0  # versions 0+
    producer_id: int = 0  # versions 0+, producerId
    producer_epoch: int = 0  # versions 0+
    topics: list[TopicData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class DescribeTransactionsResponse:
    SPEC: ClassVar[str] = "api/DescribeTransactionsResponse"
    API_KEY: ClassVar[int] = 65
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    transaction_states: list[TransactionState] = field(default_factory=list)  # versions 0+
