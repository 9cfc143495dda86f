"""TxnOffsetCommitRequest: generated from definitions/api/TxnOffsetCommitRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TxnOffsetCommitRequestPartition:
    partition_index: int = 0  # versions 0+
    committed_offset: int = 0  # versions 0+
    committed_leader_epoch: int = -1  # versions 2+
    committed_metadata: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class TxnOffsetCommitRequestTopic:
    name: str = ""  # versions 0+, topicName
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class TxnOffsetCommitRequest:
    SPEC: ClassVar[str] = "api/TxnOffsetCommitRequest"
    API_KEY: ClassVar[int] = 28
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 5
    FLEXIBLE_FROM: ClassVar[int] = 3

    transactional_id: str = ""  # versions 0+, transactionalId
    group_id: str = ""  # versions 0+, groupId
    producer_id: int = 0  # versions 0+, producerId
    producer_epoch: int = 0  # versions 0+
    generation_id: int = -1  # versions 3+
    member_id: str = ""  # versions 3+
    group_instance_id: str | None = None  # versions 3+, nullable 3+
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)  # versions 0+
