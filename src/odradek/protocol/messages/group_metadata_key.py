"""GroupMetadataKey: generated from definitions/group/GroupMetadataKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True)
class GroupMetadataKey:
    SPEC: ClassVar[str] = "group/GroupMetadataKey"
    API_KEY: ClassVar[int] = 2
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group: str = ""  # versions 0
