"""StreamsGroupCurrentMemberAssignmentValue: generated from definitions/group/StreamsGroupCurrentMemberAssignmentValue.json, do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(slots=True)
class TaskIds:
    subtopology_id: str = ""  # versions 0+
    partitions: list[int] = field(default_factory=list)  # versions 0+


@dataclass(slots=True)
class StreamsGroupCurrentMemberAssignmentValue:
    SPEC: ClassVar[str] = "group/StreamsGroupCurrentMemberAssignmentValue"
    API_KEY: ClassVar[int] = 22
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0

    member_epoch: int = 0  # versions 0+
    previous_member_epoch: int = 0  # versions 0+
    state: int = 0  # versions 0+
    active_tasks: list[TaskIds] = field(default_factory=list)  # versions 0+
    standby_tasks: list[TaskIds] = field(default_factory=list)  # versions 0+
    warmup_tasks: list[TaskIds] = field(default_factory=list)  # versions 0+
    active_tasks_pending_revocation: list[TaskIds] = field(default_factory=list)  # versions 0+
    standby_tasks_pending_revocation: list[TaskIds] = field(default_factory=list)  # versions 0+
    warmup_tasks_pending_revocation: list[TaskIds] = field(default_factory=list)  # versions 0+
