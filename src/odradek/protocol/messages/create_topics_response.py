"""CreateTopicsResponse: generated from definitions/api/CreateTopicsResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class CreatableTopicConfigs:
    name: str = ""  # versions 5+
    value: str | None = ""  # versions 5+, nullable 5+
    read_only: bool = False  # versions 5+
    config_source: int = -1  # versions 5+
    is_sensitive: bool = False  # versions 5+


@dataclass(slots=True)
class CreatableTopicResult:
    name: str = ""  # versions 0+, topicName
    topic_id: Uuid = ZERO_UUID  # versions 7+
    error_code: int = 0  # versions 0+
    error_message: str | None = ""  # versions 1+, nullable 0+
    topic_config_error_code: int = 0  # versions 5+, tag 0
    num_partitions: int = -1  # versions 5+
    replication_factor: int = -1  # versions 5+
    # versions 5+, nullable 5+
    configs: list[CreatableTopicConfigs] | None = field(default_factory=list)


@dataclass(slots=True)
class CreateTopicsResponse:
    SPEC: ClassVar[str] = "api/CreateTopicsResponse"
    API_KEY: ClassVar[int] = 19
    MIN_VERSION: ClassVar[int] = 2
    MAX_VERSION: ClassVar[int] = 7
    FLEXIBLE_FROM: ClassVar[int] = 5

    throttle_time_ms: int = 0  # versions 2+
    topics: list[CreatableTopicResult] = field(default_factory=list)  # versions 0+
