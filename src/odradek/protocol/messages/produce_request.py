"""ProduceRequest: generated from definitions/api/ProduceRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid
from odradek.protocol.wire import Chunk


@dataclass(slots=True)
class PartitionProduceData:
    index: int = 0  # versions 0+
    records: Chunk | None = None  # versions 0+, nullable 0+


@dataclass(slots=True)
class TopicProduceData:
    name: str = ""  # versions 0-12, topicName
    topic_id: Uuid = ZERO_UUID  # versions 13+
    partition_data: list[PartitionProduceData] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ProduceRequest:
    SPEC: ClassVar[str] = "api/ProduceRequest"
    API_KEY: ClassVar[int] = 0
    MIN_VERSION: ClassVar[int] = 3
    MAX_VERSION: ClassVar[int] = 13
    FLEXIBLE_FROM: ClassVar[int] = 9

    transactional_id: str | None = None  # versions 3+, nullable 3+, transactionalId
    acks: int = 0  # versions 0+
    timeout_ms: int = 0  # versions 0+
    topic_data: list[TopicProduceData] = field(default_factory=list)  # versions 0+
