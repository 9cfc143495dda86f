"""ConsumerGroupRegularExpressionKey: generated from definitions/group/ConsumerGroupRegularExpressionKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class ConsumerGroupRegularExpressionKey:
    SPEC: ClassVar[str] = "group/ConsumerGroupRegularExpressionKey"
    API_KEY: ClassVar[int] = 16
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group_id: str = ""  # versions 0
    regular_expression: str = ""  # versions 0
