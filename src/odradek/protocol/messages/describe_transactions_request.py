"""DescribeTransactionsRequest: generated from definitions/api/DescribeTransactionsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class DescribeTransactionsRequest:
    SPEC: ClassVar[str] = "api/DescribeTransactionsRequest"
    API_KEY: ClassVar[int] = 65
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    transactional_ids: list[str] = field(default_factory=list)  # versions 0+, transactionalId
