"""The state of a consumer group (KIP-848) and its queries.

Only replayed records change the durable part: epochs, members, target assignment, resolved regular
expressions. A restart loses the deadlines. Three epochs move one after the other:

1. The epoch of the group, when subscriptions or topics change.
2. The epoch of the target assignment, when the assignment has been computed for the group epoch.
3. The epoch of each member, when the member has revoked the partitions that it has to revoke.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from typing import NamedTuple

from odradek.coordinator.group.classic.classic_member import CONSUMER, OffsetsAge
from odradek.coordinator.group.consumer.consumer_member import (
    NO_PARTITIONS,
    Assignment,
    ConsumerMember,
    partitions_of,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import Uuid

# Members of the consumer protocol commit with their epoch from this version of OffsetCommit on.
MEMBER_EPOCH_FROM = 9


class ConsumerGroupState(Enum):
    """The states of a consumer group. The values are the names that tools print."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class Resolved(NamedTuple):
    """The topics that a regular expression matched, the version of the metadata, and the time.

    `time_ms` is the wall clock in milliseconds.
    """

    topics: frozenset[str]
    version: int
    time_ms: int


class TimerKind(Enum):
    """The kinds of deadlines of a member.

    SESSION is for any heartbeat and REBALANCE for the revocation of partitions. Members of the
    classic protocol also have JOIN, for joining again, and SYNC, for fetching the assignment.
    """

    SESSION = "session"
    REBALANCE = "rebalance"
    JOIN = "join"
    SYNC = "sync"


class Deadline(NamedTuple):
    """A deadline of a member (monotonic). A REBALANCE deadline holds for one member epoch only."""

    at_ms: float
    member_epoch: int = -1


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group. Its owner is the shard of its partition."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    regexes: dict[str, Resolved] = field(default_factory=dict)
    # Derived from the members: the member of each instance id, and the member epoch in which each
    # partition is held or not yet revoked.
    static_members: dict[str, str] = field(default_factory=dict)
    partition_epochs: dict[tuple[Uuid, int], int] = field(default_factory=dict)
    # Lost by a restart: the metadata that the last heartbeat used, and the deadlines.
    seen_metadata: int = -1
    deadlines: dict[tuple[TimerKind, str], Deadline] = field(default_factory=dict)

    # -- changes, by replay ------------------------------------------------------------------------

    def put_member(self, member: ConsumerMember) -> None:
        known = self.members.get(member.member_id)
        if known is not None:
            self._release(known)
        self.members[member.member_id] = member
        for held in (member.assigned, member.pending_revocation):
            for topic_partition in partitions_of(held):
                self.partition_epochs[topic_partition] = member.member_epoch
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def drop_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        if self.static_members.get(member.instance_id or "") == member_id:
            del self.static_members[member.instance_id or ""]
        for kind in TimerKind:
            self.deadlines.pop((kind, member_id), None)

    def _release(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.pending_revocation):
            for topic_partition in partitions_of(held):
                if self.partition_epochs.get(topic_partition) == member.member_epoch:
                    del self.partition_epochs[topic_partition]

    def committed_copy(self) -> ConsumerGroup:
        """Return the group as it is now, for the committed view.

        Members are immutable and shared.
        """
        return replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            regexes=dict(self.regexes),
            static_members=dict(self.static_members),
            partition_epochs=dict(self.partition_epochs),
            deadlines={},
        )

    # -- queries -----------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def protocol_type(self) -> str:
        return CONSUMER

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member. Raise UNKNOWN_MEMBER_ID when it does not exist."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return found

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member that has the instance id now, or None."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str, instance_id: str | None) -> Assignment:
        """Return the target assignment of a member, or of the static member that it replaces."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, member_id)
        return self.targets.get(member_id, NO_PARTITIONS)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics to which the member subscribes by name or by its expression."""
        resolved = self.regexes.get(member.regex or "")
        return member.topics if resolved is None else member.topics | resolved.topics

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    def classic_members(self) -> list[ConsumerMember]:
        return [member for member in self.members.values() if member.classic is not None]

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return whether all classic members support one of these protocols."""
        names = list(names)
        if protocol_type != CONSUMER or not names:
            return False
        others = [dict(m.classic.protocols) for m in self.members.values() if m.classic is not None]
        return any(all(name in protocols for protocols in others) for name in names)

    def waits_for_release(self, member: ConsumerMember) -> bool:
        """Return whether other members still have partitions of the member's target."""
        return any(
            topic_partition[1] not in member.assigned.get(topic_partition[0], ())
            and topic_partition in self.partition_epochs
            for topic_partition in partitions_of(self.targets.get(member.member_id, NO_PARTITIONS))
        )

    # -- rules shared with classic groups ----------------------------------------------------------

    def validate_delete(self) -> ErrorCode:
        """Return NONE when DeleteGroups may delete the group: it has no members."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def validate_offset_delete(self) -> ErrorCode:
        """Return NONE, because active members do not prevent OffsetDelete.

        Their subscriptions are known.
        """
        return ErrorCode.NONE

    def offsets_age(self) -> OffsetsAge:
        """Return SINCE_COMMIT. It applies to offsets of topics to which no member subscribes."""
        return OffsetsAge.SINCE_COMMIT

    def validate_commit(self, member_id: str, epoch: int, version: int | None) -> ErrorCode:
        """Return NONE when the sender may commit offsets. `version` is None for a transaction.

        An administrator, or a consumer that assigns its partitions itself, sends a negative epoch.
        It may commit to a group without members.
        """
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version is not None and member.classic is None and version < MEMBER_EPOCH_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        return _check_epoch(member, epoch)

    def validate_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE when the sender may read the offsets. Administrators send no member id."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _check_epoch(member, epoch)

    def next_deadline_ms(self) -> float:
        """Return the earliest deadline of a member (monotonic), or infinity."""
        return min((each.at_ms for each in self.deadlines.values()), default=inf)


def _check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    if member.classic is not None:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH
