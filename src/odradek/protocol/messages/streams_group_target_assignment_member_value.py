"""StreamsGroupTargetAssignmentMemberValue: generated from definitions/group/StreamsGroupTargetAssignmentMemberValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TaskIds:
    subtopology_id: str = ""  # versions 0+
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class StreamsGroupTargetAssignmentMemberValue:
    SPEC: ClassVar[str] = "group/StreamsGroupTargetAssignmentMemberValue"
    API_KEY: ClassVar[int] = 21
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    active_tasks: list[TaskIds] = field(default_factory=list)  # versions 0+
    standby_tasks: list[TaskIds] = field(default_factory=list)  # versions 0+
    warmup_tasks: list[TaskIds] = field(default_factory=list)  # versions 0+
