"""The members and the generation of a classic group: state, queries, elementary steps. Pure.

Kafka's ``ClassicGroup``. The durable part (generation, protocol, leader, members with their
subscriptions and assignments) is the content of a GroupMetadataValue record, which
`metadata_record` makes and `replay` reads. A restart loses the rest (tickets, deadlines).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Self

from odradek.coordinator.coordinator_result import CoordinatorRecord, Ticket
from odradek.coordinator.group.classic.classic_member import (
    CONSUMER,
    VALID_PREVIOUS_STATES,
    GroupState,
    JoinTimer,
    Member,
    OffsetsAge,
    replayed_member,
    subscribed_topics,
)
from odradek.coordinator.group.group_records import GROUP_METADATA_VALUE_VERSION
from odradek.errors import ErrorCode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class GroupMembership:
    """The members and the generation of a classic group.

    Base class of `ClassicGroup`, which adds the handlers of requests and timers.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    state_timestamp_ms: int = -1
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_joins: dict[str, float] = field(default_factory=dict)
    pending_syncs: set[str] = field(default_factory=set)
    awaiting_join_count: int = 0
    new_member_added: bool = False
    join_timer: JoinTimer | None = None
    sync_deadline_ms: float = inf
    # The topics to which the consumers of this generation subscribe, or None when the
    # subscriptions cannot be read.
    subscribed_topics: frozenset[str] | None = None

    # -- queries -----------------------------------------------------------------------------------

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id is not None and self.leader_id == member_id

    def has_all_members_joined(self) -> bool:
        return self.awaiting_join_count == len(self.members) and not self.pending_joins

    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def supports_protocols(self, protocol_type: str, names: list[str]) -> bool:
        """Return whether a member with these protocols may join.

        It may if all members support one of them.
        """
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        members = self.members.values()
        return any(all(name in member.protocols for member in members) for name in names)

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE, or the error of a request with an outdated member id.

        The error is UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another member has the instance
        id now.
        """
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a consumer of this group may subscribe to the topic.

        Unreadable subscriptions of consumers count as subscribed.
        """
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def validate_delete(self) -> ErrorCode:
        """Return NONE when DeleteGroups may delete the group: it has no members."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def validate_offset_delete(self) -> ErrorCode:
        """Return NONE when OffsetDelete may delete offsets.

        Active consumers do not prevent it, because their subscriptions are known.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is GroupState.EMPTY or self.uses_consumer_protocol:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def offsets_age(self) -> OffsetsAge:
        """Return the time at which the retention of this group's offsets begins."""
        if self.protocol_type is None:
            return OffsetsAge.SINCE_COMMIT
        if self.state is GroupState.EMPTY:
            return (
                OffsetsAge.SINCE_EMPTY
                if self.state_timestamp_ms >= 0
                else (OffsetsAge.SINCE_COMMIT)
            )
        if (
            self.uses_consumer_protocol
            and self.subscribed_topics is not None
            and self.state is GroupState.STABLE
        ):
            return OffsetsAge.SINCE_COMMIT
        return OffsetsAge.NEVER

    def next_deadline_ms(self) -> float:
        """Return the earliest deadline of the group (monotonic), or infinity."""
        deadline = self.sync_deadline_ms
        if self.join_timer is not None:
            deadline = min(deadline, self.join_timer.deadline_ms)
        for pending in self.pending_joins.values():
            deadline = min(deadline, pending)
        for member in self.members.values():
            deadline = min(deadline, member.deadline_ms)
        return deadline

    def committed_copy(self) -> Self:
        """Return the group as it is now, for the committed view.

        Later changes of the group do not reach the copy.
        """
        return self.draft(self.members)

    # -- writes ------------------------------------------------------------------------------------

    def draft(self, changed: Iterable[str]) -> Self:
        """Return a copy in which a write makes its changes before its record is appended.

        Args:
            changed: Ids of the members that the write changes. The draft shares the other members
                with this group.
        """
        members = dict(self.members)
        for member_id in changed:
            members[member_id] = replace(members[member_id])
        return replace(
            self,
            members=members,
            static_members=dict(self.static_members),
            pending_joins=dict(self.pending_joins),
            pending_syncs=set(self.pending_syncs),
        )

    def install(self, draft: Self) -> None:
        """Take over the state of a draft: its record was appended, or it has none."""
        for each in fields(self):
            setattr(self, each.name, getattr(draft, each.name))

    # -- steps -------------------------------------------------------------------------------------

    def transition_to(self, state: GroupState, time_ms: int) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], (
            f"group {self.group_id}: {self.state.value} does not lead to {state.value}"
        )
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = time_ms

    def add(self, member: Member, ticket: Ticket | None) -> None:
        """Add a member that is not in the group. The first member becomes the leader."""
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.pending_joins.pop(member.member_id, None)
        self.set_awaiting_join(member, ticket)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member. Do nothing when it does not exist."""
        member = self.members.pop(member_id, None)
        if member is not None:
            assert member.awaiting_sync is None, "a removed member's SyncGroup was not completed"
            assert member.awaiting_join is None, "a removed member's JoinGroup was not completed"
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)

    def set_awaiting_join(self, member: Member, ticket: Ticket | None) -> None:
        """Set or clear the join ticket of a member, and count the tickets.

        No other code writes it.
        """
        if member.awaiting_join is not None:
            self.awaiting_join_count -= 1
        if ticket is not None:
            self.awaiting_join_count += 1
        member.awaiting_join = ticket

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer. All members support it."""
        members = list(self.members.values())
        candidates = [
            name
            for name in members[0].protocols
            if all(name in member.protocols for member in members)
        ]
        votes = dict.fromkeys(candidates, 0)
        for member in members:
            votes[next(name for name in member.protocols if name in votes)] += 1
        return max(candidates, key=lambda name: votes[name])

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has joined, or else elect a member that has joined.

        Return False when no member has joined.
        """
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def init_next_generation(self, time_ms: int) -> None:
        """Begin the next generation after the join phase. Without members it is Empty."""
        self.generation_id = 1 if self.generation_id == 2_147_483_647 else self.generation_id + 1
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(GroupState.COMPLETING_REBALANCE, time_ms)
        else:
            self.protocol_name = None
            self.transition_to(GroupState.EMPTY, time_ms)
        self.pending_syncs.clear()
        self.update_subscribed_topics()

    def update_subscribed_topics(self) -> None:
        """Read the topics of a new or loaded generation from the metadata of its members."""
        if not self.uses_consumer_protocol:
            self.subscribed_topics = None
        elif not self.members:
            self.subscribed_topics = frozenset()
        else:
            try:
                self.subscribed_topics = frozenset(
                    topic
                    for member in self.members.values()
                    for topic in subscribed_topics(member.protocols[self.protocol_name or ""])
                )
            except (KeyError, MalformedMessage):
                logger.warning(
                    "group %s: cannot read the subscriptions of protocol %s. OffsetDelete treats "
                    "all topics as subscribed",
                    self.group_id,
                    self.protocol_name,
                )
                self.subscribed_topics = None

    # -- records -----------------------------------------------------------------------------------

    def metadata_record(self, assignments: dict[str, bytes]) -> CoordinatorRecord:
        """Return the record of the durable part with these assignments. `replay` reads it."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_timestamp_ms,
            members=[
                member.stored(self.protocol_name, assignments.get(member.member_id, b""))
                for member in self.members.values()
            ],
        )
        key = GroupMetadataKey(group=self.group_id)
        return CoordinatorRecord(key, value, GROUP_METADATA_VALUE_VERSION)

    def replay(self, value: GroupMetadataValue) -> None:
        """Replay a record that `metadata_record` made."""
        self.generation_id = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.leader_id = value.leader
        self.state_timestamp_ms = value.current_state_timestamp
        self.members = {
            each.member_id: replayed_member(self.members.get(each.member_id), each, value.protocol)
            for each in value.members
        }
        self.static_members = {
            member.group_instance_id: member.member_id
            for member in self.members.values()
            if member.group_instance_id is not None
        }
