"""A member of a consumer group (KIP-848): its metadata and its current assignment.

Members are immutable. A change makes a new object (`dataclasses.replace`) and its record, and the
replay of the record puts it into the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Protocol

from odradek.ids import Uuid

# Special member epochs in a heartbeat. All others are above zero.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

# Topic id -> partitions. Immutable.
Assignment = Mapping[Uuid, frozenset[int]]
NO_PARTITIONS: Assignment = {}
NO_NUMBERS: frozenset[int] = frozenset()


class MemberState(IntEnum):
    """The progress of a member towards its target assignment, with the numbers of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """The additional metadata of a member that uses the classic protocol.

    `protocols` are pairs of name and metadata, in the order of the member's preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member.

    `assigned` are the partitions that it may have. `pending_revocation` are the partitions that it
    has to revoke before it moves to the next epoch.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    classic: ClassicMember | None = None
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    pending_revocation: Assignment = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def moved_to(
        self,
        epoch: int,
        state: MemberState,
        assigned: Assignment,
        pending_revocation: Assignment,
    ) -> ConsumerMember:
        """Return the member in another epoch, or in the same one."""
        return replace(
            self,
            previous_member_epoch=self.member_epoch,
            member_epoch=epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )


def common(first: Assignment, second: Assignment) -> Assignment:
    """Return the partitions that are in both assignments. The topics are in the order of ids."""
    both = ((each, first[each] & second[each]) for each in sorted(first) if each in second)
    return {topic_id: partitions for topic_id, partitions in both if partitions}


def without(first: Assignment, second: Assignment) -> Assignment:
    """Return the partitions of the first assignment that are not in the second one.

    The topics are in the order of ids.
    """
    rest = ((each, first[each] - second.get(each, NO_NUMBERS)) for each in sorted(first))
    return {topic_id: partitions for topic_id, partitions in rest if partitions}


def union(first: Assignment, second: Assignment) -> Assignment:
    """Return the partitions of both assignments. The topics are in the order of ids."""
    return {
        topic_id: first.get(topic_id, NO_NUMBERS) | second.get(topic_id, NO_NUMBERS)
        for topic_id in sorted({**first, **second})
    }


class TopicPartitions(Protocol):
    """The partitions of one topic in an assignment. Four messages have their own class for it."""

    @property
    def topic_id(self) -> Uuid: ...
    @property
    def partitions(self) -> Sequence[int]: ...


def read_assignment(stored: Sequence[TopicPartitions]) -> Assignment:
    """Return the assignment of a record or a request. Topics without partitions are left out."""
    return {each.topic_id: frozenset(each.partitions) for each in stored if each.partitions}
