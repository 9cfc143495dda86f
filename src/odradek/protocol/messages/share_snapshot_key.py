"""ShareSnapshotKey: generated from definitions/share/ShareSnapshotKey.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class ShareSnapshotKey:
    SPEC: ClassVar[str] = "share/ShareSnapshotKey"
    API_KEY: ClassVar[int] = 0
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 32767

    group_id: str = ""  # versions 0
    topic_id: Uuid = ZERO_UUID  # versions 0
    partition: int = 0  # versions 0
