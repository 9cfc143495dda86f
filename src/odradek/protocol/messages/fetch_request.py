"""FetchRequest: generated from definitions/api/FetchRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class ReplicaState:
    replica_id: int = -1  # versions 15+, brokerId
    replica_epoch: int = -1  # versions 15+


@dataclass(slots=True)
class FetchPartition:
    partition: int = 0  # versions 0+
    current_leader_epoch: int = -1  # versions 9+
    fetch_offset: int = 0  # versions 0+
    last_fetched_epoch: int = -1  # versions 12+
    log_start_offset: int = -1  # versions 5+
    partition_max_bytes: int = 0  # versions 0+
    replica_directory_id: Uuid = ZERO_UUID  # versions 17+, tag 0
    high_watermark: int = 9223372036854775807  # versions 18+, tag 1


@dataclass(slots=True)
class FetchTopic:
    topic: str = ""  # versions 0-12, topicName
    topic_id: Uuid = ZERO_UUID  # versions 13+
    partitions: list[FetchPartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class ForgottenTopic:
    topic: str = ""  # versions 7-12, topicName
    topic_id: Uuid = ZERO_UUID  # versions 13+
    partitions: list[int] = field(default_factory=list)  # versions 7+


@dataclass(slots=True)
class FetchRequest:
    SPEC: ClassVar[str] = "api/FetchRequest"
    API_KEY: ClassVar[int] = 1
    MIN_VERSION: ClassVar[int] = 4
    MAX_VERSION: ClassVar[int] = 18
    FLEXIBLE_FROM: ClassVar[int] = 12

    cluster_id: str | None = None  # versions 12+, nullable 12+, tag 0
    replica_id: int = -1  # versions 0-14, brokerId
    replica_state: ReplicaState | None = None  # versions 15+, tag 1
    max_wait_ms: int = 0  # versions 0+
    min_bytes: int = 0  # versions 0+
    max_bytes: int = 2147483647  # versions 3+
    isolation_level: int = 0  # versions 4+
    session_id: int = 0  # versions 7+
    session_epoch: int = -1  # versions 7+
    topics: list[FetchTopic] = field(default_factory=list)  # versions 0+
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)  # versions 7+
    rack_id: str = ""  # versions 11+
