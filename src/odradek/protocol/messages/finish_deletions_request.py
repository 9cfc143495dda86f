"""FinishDeletionsRequest: generated from definitions/odradek/FinishDeletionsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import Uuid


@dataclass(slots=True)
class FinishDeletionsRequest:
    SPEC: ClassVar[str] = "odradek/FinishDeletionsRequest"
    API_KEY: ClassVar[int] = 20002
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    broker_id: int = 0  # versions 0+, brokerId
    broker_epoch: int = -1  # versions 0+
    topic_ids: list[Uuid] = field(default_factory=list)  # versions 0+
