"""ShareFetchRequest: generated from definitions/api/ShareFetchRequest.json, do not edit."""

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
class FetchPartition:
    partition_index: int = 0  # versions 0+
    partition_max_bytes: int = 0  # versions 0
    acknowledgement_batches: list[AcknowledgementBatch] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class FetchTopic:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[FetchPartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ForgottenTopic:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ShareFetchRequest:
    SPEC: ClassVar[str] = "api/ShareFetchRequest"
    API_KEY: ClassVar[int] = 78
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_id: str | None = None  # versions 0+, nullable 0+, groupId
    member_id: str | None = ""  # versions 0+, nullable 0+
    share_session_epoch: int = 0  # versions 0+
    max_wait_ms: int = 0  # versions 0+
    min_bytes: int = 0  # versions 0+
    max_bytes: int = 2147483647  # versions 0+
    max_records: int = 0  # versions 1+
    batch_size: int = 0  # versions 1+
    topics: list[FetchTopic] = field(default_factory=list)  # versions 0+
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)  # versions 0+
