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
# The protocol type of consumers. The metadata of other types (Connect's workers, for example) has
# formats of their own.
CONSUMER = "consumer"
# JoinGroup from this version on: the protocol's name may be null.
NULL_PROTOCOL_NAME_FROM = 7


class ClassicSettings(NamedTuple):
    """The limits of classic groups (``group.*`` of the broker's configuration)."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    new_member_join_timeout_ms: int = 300_000


class GroupState(Enum):
    """The states of the classic protocol. The values are the names that tools print."""

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
    """The time at which ``offsets.retention.minutes`` begins for the offsets of a group."""

    SINCE_COMMIT = "since each was committed"
    SINCE_EMPTY = "since the group became empty"
    NEVER = "they are in use"


@dataclass(slots=True)
class Member:
    """One member of a classic group.

    Its session ends at `deadline_ms` (monotonic), which is infinite while its request waits.
    """

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
        """Begin the session again: it ends `session_timeout_ms` from now."""
        self.deadline_ms = now.monotonic_ms + self.session_timeout_ms

    def has_satisfied_heartbeat(self) -> bool:
        """Return whether the session needs no heartbeat, because a request of the member waits.

        A new member has not received its id, so it does not count.
        """
        waits = self.awaiting_join is not None or self.awaiting_sync is not None
        return waits and not self.is_new

    def stored(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        """Return the member as the record of its group stores it. `replayed_member` reads it."""
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

    An existing member gets the stored assignment. A new one has the fields of the record only.
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
    """The end of the join phase.

    `remaining_ms` is the time by which an initial rebalance may still be extended; otherwise it is
    None.
    """

    deadline_ms: float
    remaining_ms: int | None = None


class JoinEvent(NamedTuple):
    """A JoinGroup request with its client, its version and the ticket of the response.

    It also has the id for a new member.
    """

    request: JoinGroupRequest
    client: GroupClient
    version: int
    new_member_id: str
    ticket: Ticket

    def protocols(self) -> dict[str, bytes]:
        return {protocol.name: protocol.metadata for protocol in self.request.protocols}

    def refused(self, code: ErrorCode, member_id: str) -> tuple[Ticket, JoinGroupResponse]:
        """Return the completion of the ticket with an error."""
        return self.ticket, join_error(code, member_id)


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return a JoinGroup response that has only an error code and a member id."""
    return JoinGroupResponse(error_code=code, member_id=member_id)


def in_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """Set a missing protocol name to null in versions that allow null, and to "" before."""
    if not response.protocol_name:
        response.protocol_name = None if version >= NULL_PROTOCOL_NAME_FROM else ""
    return response


def subscribed_topics(metadata: bytes) -> list[str]:
    """Return the topics in the metadata of a consumer.

    After the version number, all versions begin with the same fields.
    """
    if len(metadata) < 2:
        raise MalformedMessage("a subscription without a version")
    return codec.decode(ConsumerProtocolSubscription, 0, memoryview(metadata), 2).topics
