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
    LEAVE_EPOCH,
    NO_PARTITIONS,
    Assignment,
    ClassicMember,
    ConsumerMember,
    MemberState,
    read_assignment,
    without,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import Uuid
from odradek.protocol.codec import Message
from odradek.protocol.messages import (
    consumer_group_current_member_assignment_value as current_value,
)
from odradek.protocol.messages import consumer_group_member_metadata_value as member_value
from odradek.protocol.messages import consumer_group_target_assignment_member_value as target_value
from odradek.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from odradek.protocol.messages.consumer_group_member_metadata_key import (
    ConsumerGroupMemberMetadataKey,
)
from odradek.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from odradek.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from odradek.protocol.messages.consumer_group_partition_metadata_key import (
    ConsumerGroupPartitionMetadataKey,
)
from odradek.protocol.messages.consumer_group_regular_expression_key import (
    ConsumerGroupRegularExpressionKey,
)
from odradek.protocol.messages.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue,
)
from odradek.protocol.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from odradek.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from odradek.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)

# Members of the consumer protocol commit with their epoch from this version of OffsetCommit on.
MEMBER_EPOCH_FROM = 9

NO_EPOCH = -1

GroupRecordKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)


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
    # partition is held or not yet revoked, by topic.
    static_members: dict[str, str] = field(default_factory=dict)
    partition_epochs: dict[Uuid, dict[int, int]] = field(default_factory=dict)
    # Lost by a restart: the metadata that the last heartbeat used, and the deadlines.
    seen_metadata: int = -1
    deadlines: dict[tuple[TimerKind, str], Deadline] = field(default_factory=dict)

    # -- changes, by replay ------------------------------------------------------------------------

    def replay(self, key: GroupRecordKey, value: Message | None) -> None:
        """Apply one of the group's records. The shard handles the tombstone of the group itself."""
        if value is None:
            self._replay_tombstone(key)
        else:
            self._replay_value(key, value)

    def _replay_tombstone(self, key: GroupRecordKey) -> None:
        match key:
            case ConsumerGroupMemberMetadataKey():
                self.drop_member(key.member_id)
            case ConsumerGroupTargetAssignmentMetadataKey():
                self.target_epoch = NO_EPOCH
            case ConsumerGroupTargetAssignmentMemberKey():
                self.targets.pop(key.member_id, None)
            case ConsumerGroupCurrentMemberAssignmentKey():
                self._replay_current_tombstone(key.member_id)
            case ConsumerGroupRegularExpressionKey():
                self.regexes.pop(key.regular_expression, None)

    def _replay_value(self, key: GroupRecordKey, value: Message) -> None:
        match key, value:
            case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupMemberMetadataKey(), member_value.ConsumerGroupMemberMetadataValue():
                self._replay_member(key.member_id, value)
            case (
                ConsumerGroupTargetAssignmentMetadataKey(),
                ConsumerGroupTargetAssignmentMetadataValue(),
            ):
                self.target_epoch = value.assignment_epoch
            case (
                ConsumerGroupTargetAssignmentMemberKey(),
                target_value.ConsumerGroupTargetAssignmentMemberValue(),
            ):
                # Removed first, so that the new target is the last one in the order of the dict.
                self.targets.pop(key.member_id, None)
                self.targets[key.member_id] = read_assignment(value.topic_partitions)
            case (
                ConsumerGroupCurrentMemberAssignmentKey(),
                current_value.ConsumerGroupCurrentMemberAssignmentValue(),
            ):
                self._replay_current(key.member_id, value)
            case ConsumerGroupRegularExpressionKey(), ConsumerGroupRegularExpressionValue():
                self.regexes.pop(key.regular_expression, None)
                resolved = Resolved(frozenset(value.topics), value.version, value.timestamp)
                self.regexes[key.regular_expression] = resolved
            case ConsumerGroupPartitionMetadataKey(), _:
                pass  # Brokers before 4.1 wrote the topics of a group here.
            case _:
                raise AssertionError(f"{key} has the value {value}")

    def _replay_member(
        self, member_id: str, value: member_value.ConsumerGroupMemberMetadataValue
    ) -> None:
        classic = None
        if value.classic_member_metadata is not None:
            stored = value.classic_member_metadata
            classic = ClassicMember(
                stored.session_timeout_ms,
                tuple((each.name, each.metadata) for each in stored.supported_protocols),
            )
        known = self.members.get(member_id) or ConsumerMember(member_id)
        self.put_member(
            replace(
                known,
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topics=frozenset(value.subscribed_topic_names),
                regex=value.subscribed_topic_regex,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                server_assignor=value.server_assignor,
                classic=classic,
            )
        )

    def _replay_current_tombstone(self, member_id: str) -> None:
        # The tombstone of the member itself follows. Until then it has no partitions.
        known = self.members.get(member_id)
        if known is not None:
            self.put_member(
                replace(
                    known,
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    state=MemberState.STABLE,
                    assigned=NO_PARTITIONS,
                    pending_revocation=NO_PARTITIONS,
                )
            )

    def _replay_current(
        self,
        member_id: str,
        value: current_value.ConsumerGroupCurrentMemberAssignmentValue,
    ) -> None:
        states = {int(state): state for state in MemberState}
        known = self.members.get(member_id) or ConsumerMember(member_id)
        self.put_member(
            replace(
                known,
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=states.get(value.state, MemberState.UNKNOWN),
                assigned=read_assignment(value.assigned_partitions),
                pending_revocation=read_assignment(value.partitions_pending_revocation),
            )
        )

    def put_member(self, member: ConsumerMember) -> None:
        known = self.members.get(member.member_id)
        if known is not None:
            self._release(known)
        self.members[member.member_id] = member
        for held in (member.assigned, member.pending_revocation):
            for topic_id, partitions in held.items():
                epochs = self.partition_epochs.setdefault(topic_id, {})
                epochs.update(dict.fromkeys(partitions, member.member_epoch))
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
            for topic_id, partitions in held.items():
                epochs = self.partition_epochs.get(topic_id, {})
                mine = [each for each in partitions if epochs.get(each) == member.member_epoch]
                if len(mine) == len(epochs):
                    self.partition_epochs.pop(topic_id, None)
                    continue
                for partition in mine:
                    del epochs[partition]

    # -- changes of the state that is in no record -------------------------------------------------

    def set_deadline(self, kind: TimerKind, member_id: str, deadline: Deadline | None) -> None:
        """Set a deadline, or remove it. Ignore a deadline of a member that does not exist."""
        if deadline is None:
            self.deadlines.pop((kind, member_id), None)
        elif member_id in self.members:
            self.deadlines[kind, member_id] = deadline

    def set_seen_metadata(self, offset: int) -> None:
        """Note the offset of the metadata that the last heartbeat used."""
        self.seen_metadata = offset

    # -- the committed view ------------------------------------------------------------------------

    def committed_copy(self) -> ConsumerGroup:
        """Return the group as it is now, for the committed view.

        Members are immutable and shared. Decisions use the latest state, so the copy has no epochs
        of partitions and no deadlines.
        """
        return replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            regexes=dict(self.regexes),
            static_members=dict(self.static_members),
            partition_epochs={},
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

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return whether all classic members support one of these protocols."""
        names = list(names)
        if protocol_type != CONSUMER or not names:
            return False
        others = [dict(m.classic.protocols) for m in self.members.values() if m.classic is not None]
        return any(all(name in protocols for protocols in others) for name in names)

    def waits_for_release(self, member: ConsumerMember) -> bool:
        """Return whether other members still have partitions of the member's target."""
        missing = without(self.targets.get(member.member_id, NO_PARTITIONS), member.assigned)
        return any(
            not partitions.isdisjoint(self.partition_epochs.get(topic_id, ()))
            for topic_id, partitions in missing.items()
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
