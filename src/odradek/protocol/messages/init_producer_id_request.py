"""InitProducerIdRequest: generated from definitions/api/InitProducerIdRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class InitProducerIdRequest:
    SPEC: ClassVar[str] = "api/InitProducerIdRequest"
    API_KEY: ClassVar[int] = 22
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 6
    FLEXIBLE_FROM: ClassVar[int] = 2

    transactional_id: str | None = ""  # versions 0+, nullable 0+, transactionalId
    transaction_timeout_ms: int = 0  # versions 0+
    producer_id: int = -1  # versions 3+, producerId
    producer_epoch: int = -1  # versions 3+
    enable2_pc: bool = False  # versions 6+
    keep_prepared_txn: bool = False  # versions 6+
