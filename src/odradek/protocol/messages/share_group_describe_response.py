"""ShareGroupDescribeResponse: generated from definitions/api/ShareGroupDescribeResponse.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from odradek.ids import ZERO_UUID, Uuid


@dataclass(slots=True)
class TopicPartitions:
    topic_id: Uuid = ZERO_UUID  # versions 0+
    topic_name: str = ""  # versions 0+, topicName
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Assignment:
    topic_partitions: list[TopicPartitions] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class Member:
    member_id: str = ""  # versions 0+
    rack_id: str | None = None  # versions 0+, nullable 0+
    member_epoch: int = 0  # versions 0+
    client_id: str = ""  # versions 0+
    client_host: str = ""  # versions 0+
    subscribed_topic_names: list[str] = field(default_factory=list)  # versions 0+, topicName
    assignment: Assignment = field(default_factory=Assignment)  # versions 0+


@dataclass(slots=True)
class DescribedGroup:
    error_code: int = 0  # versions 0+
    error_message: str | None = None  # versions 0+, nullable 0+
    group_id: str = ""  # versions 0+, groupId
    group_state: str = ""  # versions 0+
    group_epoch: int = 0  # versions 0+
    assignment_epoch: int = 0  # versions 0+
    assignor_name: str = ""  # versions 0+
    members: list[Member] = field(default_factory=list)  # versions 0+
    authorized_operations: int = -2147483648  # versions 0+


@dataclass(slots=True)
class ShareGroupDescribeResponse:
    SPEC: ClassVar[str] = "api/ShareGroupDescribeResponse"
    API_KEY: ClassVar[int] = 77
    MIN_VERSION: ClassVar[int] = 1
    MAX_VERSION: ClassVar[int] = 1
    FLEXIBLE_FROM: ClassVar[int] = 0

    throttle_time_ms: int = 0  # versions 0+
    groups: list[DescribedGroup] = field(default_factory=list)  # versions 0+
