"""StreamsGroupHeartbeatRequest: generated from definitions/api/StreamsGroupHeartbeatRequest.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class KeyValue:
    key: str = ""  # versions 0+
    value: str = ""  # versions 0+


@dataclass(slots=True)
class TopicInfo:
    name: str = ""  # versions 0+, topicName
    partitions: int = 0  # versions 0+
    replication_factor: int = 0  # versions 0+
    topic_configs: list[KeyValue] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class CopartitionGroup:
    source_topics: list[int] = field(default_factory=list)  # versions 0+
    source_topic_regex: list[int] = field(default_factory=list)  # versions 0+
    repartition_source_topics: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Subtopology:
    subtopology_id: str = ""  # versions 0+
    source_topics: list[str] = field(default_factory=list)  # versions 0+, topicName
    source_topic_regex: list[str] = field(default_factory=list)  # versions 0+
    state_changelog_topics: list[TopicInfo] = field(default_factory=list)  # versions 0+
    repartition_sink_topics: list[str] = field(default_factory=list)  # versions 0+, topicName
    repartition_source_topics: list[TopicInfo] = field(default_factory=list)  # versions 0+
    copartition_groups: list[CopartitionGroup] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Topology:
    epoch: int = 0  # versions 0+
    subtopologies: list[Subtopology] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class TaskIds:
    subtopology_id: str = ""  # versions 0+
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Endpoint:
    host: str = ""  # versions 0+
    port: int = 0  # versions 0+


@dataclass(slots=True)
class TaskOffset:
    subtopology_id: str = ""  # versions 0+
    partition: int = 0  # versions 0+
    offset: int = 0  # versions 0+


@dataclass(slots=True)
class StreamsGroupHeartbeatRequest:
    SPEC: ClassVar[str] = "api/StreamsGroupHeartbeatRequest"
    API_KEY: ClassVar[int] = 88
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    group_id: str = ""  # versions 0+, groupId
    member_id: str = ""  # versions 0+
    member_epoch: int = 0  # versions 0+
    endpoint_information_epoch: int = 0  # versions 0+
    instance_id: str | None = None  # versions 0+, nullable 0+
    rack_id: str | None = None  # versions 0+, nullable 0+
    rebalance_timeout_ms: int = -1  # versions 0+
    topology: Topology | None = None  # versions 0+, nullable 0+
    active_tasks: list[TaskIds] | None = None  # versions 0+, nullable 0+
    standby_tasks: list[TaskIds] | None = None  # versions 0+, nullable 0+
    warmup_tasks: list[TaskIds] | None = None  # versions 0+, nullable 0+
    process_id: str | None = None  # versions 0+, nullable 0+
    user_endpoint: Endpoint | None = None  # versions 0+, nullable 0+
    client_tags: list[KeyValue] | None = None  # versions 0+, nullable 0+
    task_offsets: list[TaskOffset] | None = None  # versions 0+, nullable 0+
    task_end_offsets: list[TaskOffset] | None = None  # versions 0+, nullable 0+
    shutdown_application: bool = False  # versions 0+
