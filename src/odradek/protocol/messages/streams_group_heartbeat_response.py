"""StreamsGroupHeartbeatResponse: generated from definitions/api/StreamsGroupHeartbeatResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class Status:
    status_code: int = 0  # versions 0+
    status_detail: str = ""  # versions 0+


@dataclass(slots=True)
class TaskIds:
    subtopology_id: str = ""  # versions 0+
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Endpoint:
    host: str = ""  # versions 0+
    port: int = 0  # versions 0+


@dataclass(slots=True)
class TopicPartition:
    topic: str = ""  # versions 0+, topicName
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class EndpointToPartitions:
    user_endpoint: Endpoint = field(default_factory=Endpoint)  # versions 0+
    active_partitions: list[TopicPartition] = field(default_factory=list)  # versions 0+
    standby_partitions: list[TopicPartition] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class StreamsGroupHeartbeatResponse:
    SPEC: ClassVar[str] = "api/StreamsGroupHeartbeatResponse"
    API_KEY: ClassVar[int] = 88
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    member_id: str = ""  # versions 0+
    member_epoch: int = 0  # versions 0+
    heartbeat_interval_ms: int = 0  # versions 0+
    acceptable_recovery_lag: int = 0  # versions 0+
    task_offset_interval_ms: int = 0  # versions 0+
    status: list[Status] | None = None  # versions 0+, nullable 0+
    active_tasks: list[TaskIds] | None = None  # versions 0+, nullable 0+
    standby_tasks: list[TaskIds] | None = None  # versions 0+, nullable 0+
    warmup_tasks: list[TaskIds] | None = None  # versions 0+, nullable 0+
    endpoint_information_epoch: int = 0  # versions 0+
    # versions 0+, nullable 0+
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
