"""ListTransactionsRequest: generated from definitions/api/ListTransactionsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ListTransactionsRequest:
    SPEC: ClassVar[str] = "api/ListTransactionsRequest"
    API_KEY: ClassVar[int] = 66
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 2
    FLEXIBLE_FROM: ClassVar[int] = 0

    state_filters: list[str] = field(default_factory=list)  # versions 0+
    producer_id_filters: list[int] = field(default_factory=list)  # versions 0+, producerId
    duration_filter: int = -1  # versions 1+
    transactional_id_pattern: str | None = None  # versions 2+, nullable 2+
