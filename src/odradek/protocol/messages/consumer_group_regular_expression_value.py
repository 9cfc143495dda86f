"""ConsumerGroupRegularExpressionValue: generated from definitions/group/ConsumerGroupRegularExpressionValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class ConsumerGroupRegularExpressionValue:
    SPEC: ClassVar[str] = "group/ConsumerGroupRegularExpressionValue"
    API_KEY: ClassVar[int] = 16
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    topics: list[str] = field(default_factory=list)  # versions 0+
    version: int = 0  # versions 0+
    timestamp: int = 0  # versions 0+
