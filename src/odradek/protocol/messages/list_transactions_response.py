"""ListTransactionsResponse: generated from definitions/api/ListTransactionsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TransactionState:
    transactional_id: str = ""  # versions 0+, transactionalId
    producer_id: int = 0  # versions 0+, producerId
    transaction_state: str = ""  # versions 0+


@dataclass(slots=True)
class ListTransactionsResponse:
    SPEC: ClassVar[str] = "api/ListTransactionsResponse"
    API_KEY: ClassVar[int] = 66
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    unknown_state_filters: list[str] = field(default_factory=list)  # versions 0+
    transaction_states: list[TransactionState] = field(default_factory=list)  # versions 0+
