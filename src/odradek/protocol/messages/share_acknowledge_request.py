"""ShareAcknowledgeRequest: generated from definitions/api/ShareAcknowledgeRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class AcknowledgementBatch:
    first_offset: int = 0  # versions 0+
    last_offset: int = 0  # versions 0+
    acknowledge_types: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AcknowledgePartition:
    partition_index: int = 0  # versions 0+
    acknowledgement_batches: list[AcknowledgementBatch] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class AcknowledgeTopic:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[AcknowledgePartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ShareAcknowledgeRequest:
    SPEC: ClassVar[str] = "api/ShareAcknowledgeRequest"
    API_KEY: ClassVar[int] = 79
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_id: str | None = None  # versions 0+, nullable 0+, groupId
    member_id: str | None = ""  # versions 0+, nullable 0+
    share_session_epoch: int = 0  # versions 0+
    topics: list[AcknowledgeTopic] = field(default_factory=list)  # versions 0+
