"""AddOffsetsToTxnRequest: generated from definitions/api/AddOffsetsToTxnRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class AddOffsetsToTxnRequest:
    SPEC: ClassVar[str] = "api/AddOffsetsToTxnRequest"
    API_KEY: ClassVar[int] = 25
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 4
    FLEXIBLE_FROM: ClassVar[int] = 3

    transactional_id: str = ""  # versions 0+, transactionalId
    producer_id: int = 0  # versions 0+, producerId
    producer_epoch: int = 0  # versions 0+
    group_id: str = ""  # versions 0+, groupId
