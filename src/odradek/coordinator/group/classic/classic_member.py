"""Parts of a classic group: states, members, settings, JoinGroup events. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import NamedTuple

from odradek.coordinator.coordinator_result import Ticket, Timestamp
from odradek.coordinator.group.group_client import GroupClient
from odradek.errors import ErrorCode
from odradek.protocol import codec
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.messages.group_metadata_value import MemberMetadata
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse

NO_MEMBER_ID = ""
# The protocol type of consumers; others (Connect's workers, for one) put into their metadata what
# they like.
CONSUMER = "consumer"
# JoinGroup from this version on: the protocol's name may be null.
NULL_PROTOCOL_NAME_FROM = 7


class ClassicSettings(NamedTuple):
    """The settings that bound classic groups (``group.*`` of the broker's configuration)."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    new_member_join_timeout_ms: int = 300_000


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

    def refresh_session(self, now: Timestamp) -> None:
        """The member has shown that it is alive: its session ends `session_timeout_ms` from
        now."""
        self.deadline_ms = now.monotonic_ms + self.session_timeout_ms

    def has_satisfied_heartbeat(self) -> bool:
        """A member that waits for others need not send heartbeats, unless it never got its id."""
        waits = self.awaiting_join is not None or self.awaiting_sync is not None
        return waits and not self.is_new

    def stored(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """The member in the record of its group; `replayed_member` reads it."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=b"" if protocol is None else self.protocols[protocol],
            assignment=assignment,
        )


def replayed_member(known: Member | None, stored: MemberMetadata, protocol: str | None) -> Member:
    """Return the member that `Member.stored` has written.

    A known member gets its stored assignment. Another one is as the record alone describes it.
    """
    if known is not None:
        known.assignment = stored.assignment
        return known
    rebalance_timeout_ms = stored.rebalance_timeout
    if rebalance_timeout_ms == -1:
        rebalance_timeout_ms = stored.session_timeout
    return Member(
        member_id=stored.member_id,
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=stored.session_timeout,
        protocols={protocol or "": stored.subscription},
        assignment=stored.assignment,
    )


class JoinTimer(NamedTuple):
    """When the join phase ends. `remaining_ms` is set in the initial rebalance, which may be
    extended."""

    deadline_ms: float
    remaining_ms: int | None = None


class JoinEvent(NamedTuple):
    """A JoinGroup request, its client and version, the id that a new member would get, and the
    ticket of the response."""

    request: JoinGroupRequest
    client: GroupClient
    version: int
    new_member_id: str
    ticket: Ticket

    def protocols(self) -> dict[str, bytes]:
        return {protocol.name: protocol.metadata for protocol in self.request.protocols}

    def refused(self, code: ErrorCode, member_id: str) -> tuple[Ticket, JoinGroupResponse]:
        """The completion of the ticket with an error."""
        return self.ticket, join_error(code, member_id)


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """A JoinGroup answer that only says what is wrong (a missing protocol name is null or "")."""
    return JoinGroupResponse(error_code=code, member_id=member_id)


def in_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """A missing protocol name is null in versions that have null, and empty before."""
    if not response.protocol_name:
        response.protocol_name = None if version >= NULL_PROTOCOL_NAME_FROM else ""
    return response


def subscribed_topics(metadata: bytes) -> list[str]:
    """The topics in a consumer's metadata: behind its version all versions begin alike."""
    if len(metadata) < 2:
        raise MalformedMessage("a subscription has a version")
    return codec.decode(ConsumerProtocolSubscription, 0, memoryview(metadata), 2).topics
