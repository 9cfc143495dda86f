"""TransactionLogValue: generated from definitions/transaction/TransactionLogValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class PartitionsSchema:
    topic: str = ""  # versions 0+
    partition_ids: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class TransactionLogValue:
    SPEC: ClassVar[str] = "transaction/TransactionLogValue"
    API_KEY: ClassVar[int] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 1

    producer_id: int = 0  # versions 0+
    previous_producer_id: int = -1  # versions 1+, tag 0
    next_producer_id: int = -1  # versions 1+, tag 1
    producer_epoch: int = 0  # versions 0+
    next_producer_epoch: int = -1  # versions 1+, tag 3
    transaction_timeout_ms: int = 0  # versions 0+
    transaction_status: int = 0  # versions 0+
    # versions 0+, nullable 0+
    transaction_partitions: list[PartitionsSchema] | None = field(default_factory=list)
    transaction_last_update_timestamp_ms: int = 0  # versions 0+
    transaction_start_timestamp_ms: int = 0  # versions 0+
    client_transaction_version: int = 0  # versions 1+, tag 2
