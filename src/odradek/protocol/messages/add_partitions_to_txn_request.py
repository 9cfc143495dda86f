"""AddPartitionsToTxnRequest: generated from definitions/api/AddPartitionsToTxnRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class AddPartitionsToTxnTopic:
    name: str = ""  # versions 0+, topicName
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AddPartitionsToTxnTransaction:
    transactional_id: str = ""  # versions 4+, transactionalId
    producer_id: int = 0  # versions 4+, producerId
    producer_epoch: int = 0  # versions 4+
    verify_only: bool = False  # versions 4+
    topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)  # versions 4+


@dataclass(slots=True)
class AddPartitionsToTxnRequest:
    SPEC: ClassVar[str] = "api/AddPartitionsToTxnRequest"
    API_KEY: ClassVar[int] = 24
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    transactions: list[AddPartitionsToTxnTransaction] = field(default_factory=list)  # versions 4+
    v3_and_below_transactional_id: str = ""  # versions 0-3, transactionalId
    v3_and_below_producer_id: int = 0  # versions 0-3, producerId
    v3_and_below_producer_epoch: int = 0  # versions 0-3
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)  # versions 0-3
