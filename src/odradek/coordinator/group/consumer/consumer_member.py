"""A member of a consumer group (KIP-848): its metadata and its current assignment.

Members are immutable. A change makes a new object (`dataclasses.replace`) and its record, and the
replay of the record puts it into the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def partitions_of(assignment: Assignment) -> Iterator[tuple[Uuid, int]]:
    """Iterate over the partitions of an assignment."""
    for topic_id, partitions in assignment.items():
        for partition in partitions:
            yield topic_id, partition


def assignment_of(partitions: Iterable[tuple[Uuid, int]]) -> dict[Uuid, frozenset[int]]:
    """Return the assignment of these partitions. Its order does not depend on theirs."""
    by_topic: dict[Uuid, set[int]] = {}
    for topic_id, partition in partitions:
        by_topic.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(found) for topic_id, found in sorted(by_topic.items())}


class TopicPartitions(Protocol):
    """The partitions of one topic in an assignment. Four messages have their own class for it."""

    @property
    def topic_id(self) -> Uuid: ...
    @property
    def partitions(self) -> Sequence[int]: ...


def read_assignment(stored: Sequence[TopicPartitions]) -> Assignment:
    """Return the assignment of a record or a request. Topics without partitions are left out."""
    return {each.topic_id: frozenset(each.partitions) for each in stored if each.partitions}
