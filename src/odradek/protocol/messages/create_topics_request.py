"""CreateTopicsRequest: generated from definitions/api/CreateTopicsRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class CreatableReplicaAssignment:
    partition_index: int = 0  # versions 0+
    broker_ids: list[int] = field(default_factory=list)  # versions 0+, brokerId


@dataclass(slots=True)
class CreatableTopicConfig:
    name: str = ""  # versions 0+
    value: str | None = ""  # versions 0+, nullable 0+


@dataclass(slots=True)
class CreatableTopic:
    name: str = ""  # versions 0+, topicName
    num_partitions: int = 0  # versions 0+
    replication_factor: int = 0  # versions 0+
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)  # versions 0+
    configs: list[CreatableTopicConfig] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class CreateTopicsRequest:
    SPEC: ClassVar[str] = "api/CreateTopicsRequest"
    API_KEY: ClassVar[int] = 19
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 7
    FLEXIBLE_FROM: ClassVar[int] = 5

    topics: list[CreatableTopic] = field(default_factory=list)  # versions 0+
    timeout_ms: int = 60000  # versions 0+
    validate_only: bool = False  # versions 1+
