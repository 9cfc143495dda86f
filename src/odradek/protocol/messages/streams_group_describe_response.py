"""StreamsGroupDescribeResponse: generated from definitions/api/StreamsGroupDescribeResponse.json, do not edit."""

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
class Subtopology:
    subtopology_id: str = ""  # versions 0+
    source_topics: list[str] = field(default_factory=list)  # versions 0+, topicName
    repartition_sink_topics: list[str] = field(default_factory=list)  # versions 0+, topicName
    state_changelog_topics: list[TopicInfo] = field(default_factory=list)  # versions 0+
    repartition_source_topics: list[TopicInfo] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Topology:
    epoch: int = 0  # versions 0+
    subtopologies: list[Subtopology] | None = None  # versions 0+, nullable 0+


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
class TaskIds:
    subtopology_id: str = ""  # versions 0+
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Assignment:
    active_tasks: list[TaskIds] = field(default_factory=list)  # versions 0+
    standby_tasks: list[TaskIds] = field(default_factory=list)  # versions 0+
    warmup_tasks: list[TaskIds] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Member:
    member_id: str = ""  # versions 0+
    member_epoch: int = 0  # versions 0+
    instance_id: str | None = None  # versions 0+, nullable 0+
    rack_id: str | None = None  # versions 0+, nullable 0+
    client_id: str = ""  # versions 0+
    client_host: str = ""  # versions 0+
    topology_epoch: int = 0  # versions 0+
    process_id: str = ""  # versions 0+
    user_endpoint: Endpoint | None = None  # versions 0+, nullable 0+
    client_tags: list[KeyValue] = field(default_factory=list)  # versions 0+
    task_offsets: list[TaskOffset] = field(default_factory=list)  # versions 0+
    task_end_offsets: list[TaskOffset] = field(default_factory=list)  # versions 0+
    assignment: Assignment = field(default_factory=Assignment)  # versions 0+
    target_assignment: Assignment = field(default_factory=Assignment)  # versions 0+
    is_classic: bool = False  # versions 0+


@dataclass(slots=True)
class DescribedGroup:
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    group_id: str = ""  # versions 0+, groupId
    group_state: str = ""  # versions 0+
    group_epoch: int = 0  # versions 0+
    assignment_epoch: int = 0  # versions 0+
    topology: Topology | None = None  # versions 0+, nullable 0+
    members: list[Member] = field(default_factory=list)  # versions 0+
    authorized_operations: int = -2147483648  # versions 0+


@dataclass(slots=True)
class StreamsGroupDescribeResponse:
    SPEC: ClassVar[str] = "api/StreamsGroupDescribeResponse"
    API_KEY: ClassVar[int] = 89
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    groups: list[DescribedGroup] = field(default_factory=list)  # versions 0+
