"""EndTxnRequest: generated from definitions/api/EndTxnRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class EndTxnRequest:
    SPEC: ClassVar[str] = "api/EndTxnRequest"
    API_KEY: ClassVar[int] = 26
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    transactional_id: str = ""  # versions 0+, transactionalId
    producer_id: int = 0  # versions 0+, producerId
    producer_epoch: int = 0  # versions 0+
    committed: bool = False  # versions 0+
