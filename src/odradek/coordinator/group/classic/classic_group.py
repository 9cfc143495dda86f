"""The state of a classic group, and the small steps that keep it consistent.

`GroupState` and `VALID_PREVIOUS_STATES` are Kafka's ``ClassicGroupState``; `ClassicGroup` holds
what its ``ClassicGroup`` holds. The steps here touch one group and decide nothing; the decisions
are in `rebalance` and `classic`. The durable part of a group (generation, protocol, leader, members
with their subscriptions and assignments) is what a GroupMetadataValue record carries; the rest (who
waits, whose deadline is when) is soft and is gone after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import NamedTuple

from odradek.coordinator.group.classic.effects import Effects, Ticket
from odradek.errors import ErrorCode
from odradek.protocol import codec
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.join_group_response import (
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

logger = logging.getLogger(__name__)

NO_MEMBER_ID = ""
# The protocol type of consumers; others (Connect's workers, for one) put into their metadata what
# they like.
CONSUMER = "consumer"


class GroupState(Enum):
    """The states of the classic protocol; the values are the names that tools print."""

    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"


_EMPTY, _PREPARING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE
_COMPLETING, _STABLE, _DEAD = GroupState.COMPLETING_REBALANCE, GroupState.STABLE, GroupState.DEAD

VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    _EMPTY: frozenset({_PREPARING}),
    _PREPARING: frozenset({_STABLE, _COMPLETING, _EMPTY}),
    _COMPLETING: frozenset({_PREPARING}),
    _STABLE: frozenset({_COMPLETING}),
    _DEAD: frozenset(GroupState),
}


class OffsetsAge(Enum):
    """From when on ``offsets.retention.minutes`` counts for the offsets of a group."""

    SINCE_COMMIT = "since each was committed"
    SINCE_EMPTY = "since the group became empty"
    NEVER = "they are in use"


@dataclass(slots=True)
class Member:
    """One member. `deadline_ms` (monotonic) is when its session ends; infinite while it waits."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    assignment: bytes = b""
    awaiting_join: Ticket | None = None
    awaiting_sync: Ticket | None = None
    is_new: bool = False
    deadline_ms: float = inf

    def has_satisfied_heartbeat(self) -> bool:
        """A member that waits for others need not send heartbeats, unless it never got its id."""
        waits = self.awaiting_join is not None or self.awaiting_sync is not None
        return waits and not self.is_new


class JoinTimer(NamedTuple):
    """When the join phase ends. `remaining_ms` is set in the initial rebalance, which may be
    extended."""

    deadline_ms: float
    remaining_ms: int | None = None


@dataclass(slots=True)
class ClassicGroup:
    """A classic group. Its owner is the shard of its partition; the event loop alone changes it."""

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
    # What the consumers of this generation read; None when that is not known.
    subscribed_topics: frozenset[str] | None = None

    # -- questions ---------------------------------------------------------------------------------

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id is not None and self.leader_id == member_id

    def has_all_members_joined(self) -> bool:
        return self.awaiting_join_count == len(self.members) and not self.pending_joins

    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]

    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asked for."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def supports_protocols(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a member with these protocols could be added: one of them is common to all."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if self.protocol_type != protocol_type:
            return False
        members = self.members.values()
        return any(all(name in member.protocols for member in members) for name in names)

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another member took the instance
        over."""
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
        """Whether a consumer of this group reads the topic; consumers that cannot be understood
        may."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def validate_delete(self) -> ErrorCode:
        """DeleteGroups takes away groups without members."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def validate_offset_delete(self) -> ErrorCode:
        """OffsetDelete works beside living consumers, as it is known what they read."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.state is GroupState.EMPTY or self.uses_consumer_protocol:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def offsets_age(self) -> OffsetsAge:
        """From when on the retention of this group's offsets counts."""
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
        """The earliest time (monotonic) at which `classic.expire` has something to do."""
        deadline = self.sync_deadline_ms
        if self.join_timer is not None:
            deadline = min(deadline, self.join_timer.deadline_ms)
        for pending in self.pending_joins.values():
            deadline = min(deadline, pending)
        for member in self.members.values():
            deadline = min(deadline, member.deadline_ms)
        return deadline

    def waiting(self) -> Iterator[Ticket]:
        """Every ticket that the group still owes an answer."""
        for member in self.members.values():
            if member.awaiting_join is not None:
                yield member.awaiting_join
            if member.awaiting_sync is not None:
                yield member.awaiting_sync

    def described_members(self) -> list[JoinGroupResponseMember]:
        """The members with their metadata for the chosen protocol: what the leader assigns from."""
        assert self.protocol_name is not None, f"{self.group_id} has no protocol in {self.state}"
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.protocols[self.protocol_name],
            )
            for member in self.members.values()
        ]

    # -- steps -------------------------------------------------------------------------------------

    def transition_to(self, state: GroupState, time_ms: int) -> None:
        assert self.state in VALID_PREVIOUS_STATES[state], (
            f"group {self.group_id}: {self.state.value} does not lead to {state.value}"
        )
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = time_ms

    def add(self, member: Member, ticket: Ticket | None) -> None:
        """Adds a member that is not in the group; the first one is the leader and gives the
        type."""
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
        """Removes a member, pending or not; nothing happens when there is none."""
        member = self.members.pop(member_id, None)
        if member is not None:
            assert member.awaiting_sync is None, "a removed member's SyncGroup was not answered"
            assert member.awaiting_join is None, "a removed member's JoinGroup was not answered"
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)

    def set_awaiting_join(self, member: Member, ticket: Ticket | None) -> None:
        """The only place where a join ticket is put down or taken up: it keeps the count."""
        if member.awaiting_join is not None:
            self.awaiting_join_count -= 1
        if ticket is not None:
            self.awaiting_join_count += 1
        member.awaiting_join = ticket

    def answer_join(self, member: Member, answer: JoinGroupResponse, effects: Effects) -> None:
        """Answers the member's waiting JoinGroup; nothing happens when none waits."""
        ticket = member.awaiting_join
        if ticket is not None:
            self.set_awaiting_join(member, None)
            effects.answers.append((ticket, answer))

    def answer_sync(self, member: Member, answer: SyncGroupResponse, effects: Effects) -> bool:
        """Answers the member's waiting SyncGroup, and says whether one waited."""
        ticket = member.awaiting_sync
        if ticket is None:
            return False
        member.awaiting_sync = None
        effects.answers.append((ticket, answer))
        return True

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those that all of them support."""
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
        """Keeps a leader that has joined, else takes a member that has; False when none has."""
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
        """The join phase is over: the next generation begins, Empty when nobody is left."""
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
        """Reads from the members' metadata what a new (or loaded) generation consumes."""
        if not self.uses_consumer_protocol:
            self.subscribed_topics = None
        elif not self.members:
            self.subscribed_topics = frozenset()
        else:
            try:
                self.subscribed_topics = frozenset(
                    topic
                    for member in self.members.values()
                    for topic in _subscription(member.protocols[self.protocol_name or ""])
                )
            except (KeyError, MalformedMessage):
                logger.warning(
                    "group %s: the subscriptions of protocol %s cannot be read",
                    self.group_id,
                    self.protocol_name,
                )
                self.subscribed_topics = None


def _subscription(metadata: bytes) -> list[str]:
    """The topics in a consumer's metadata: behind its version all versions begin alike."""
    if len(metadata) < 2:
        raise MalformedMessage("a subscription has a version")
    return codec.decode(ConsumerProtocolSubscription, 0, memoryview(metadata), 2).topics
