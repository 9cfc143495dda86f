"""StreamsGroupTopologyValue: generated from definitions/group/StreamsGroupTopologyValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TopicConfig:
    key: str = ""  # versions 0+
    value: str = ""  # versions 0+


@dataclass(slots=True)
class TopicInfo:
    name: str = ""  # versions 0+
    partitions: int = 0  # versions 0+
    replication_factor: int = 0  # versions 0+
    topic_configs: list[TopicConfig] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class CopartitionGroup:
    source_topics: list[int] = field(default_factory=list)  # versions 0+
    source_topic_regex: list[int] = field(default_factory=list)  # versions 0+
    repartition_source_topics: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Subtopology:
    subtopology_id: str = ""  # versions 0+
    source_topics: list[str] = field(default_factory=list)  # versions 0+
    source_topic_regex: list[str] = field(default_factory=list)  # versions 0+
    state_changelog_topics: list[TopicInfo] = field(default_factory=list)  # versions 0+
    repartition_sink_topics: list[str] = field(default_factory=list)  # versions 0+
    repartition_source_topics: list[TopicInfo] = field(default_factory=list)  # versions 0+
    copartition_groups: list[CopartitionGroup] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class StreamsGroupTopologyValue:
    SPEC: ClassVar[str] = "group/StreamsGroupTopologyValue"
    API_KEY: ClassVar[int] = 23
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    epoch: int = 0  # versions 0+
    subtopologies: list[Subtopology] = field(default_factory=list)  # versions 0+
