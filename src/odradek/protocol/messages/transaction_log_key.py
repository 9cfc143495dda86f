"""TransactionLogKey: generated from definitions/transaction/TransactionLogKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class TransactionLogKey:
    SPEC: ClassVar[str] = "transaction/TransactionLogKey"
    API_KEY: ClassVar[int] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    transactional_id: str = ""  # versions 0
