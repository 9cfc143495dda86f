"""The classic group protocol: what each request, and each tick of the clock, does to a group.

Kafka's rules (``GroupMetadataManager``: classicGroupJoin, -Sync, -Heartbeat, -Leave, and the expiry
of heartbeats), as functions (group, event, now) -> Effects that touch nothing but the group.
JoinGroup and SyncGroup carry a ticket and are answered through the effects; Heartbeat and
LeaveGroup answer at once.

A request that is sent again while its first copy still waits takes the first one's place, as in
Kafka; the first is answered REBALANCE_IN_PROGRESS, where Kafka never answers it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import NamedTuple

from odradek.coordinator.group.classic import rebalance
from odradek.coordinator.group.classic.classic_group import (
    NO_MEMBER_ID,
    ClassicGroup,
    GroupState,
    Member,
)
from odradek.coordinator.group.classic.effects import Client, Effects, GroupLimits, Instant, Ticket
from odradek.coordinator.group.group_records import group_metadata_record
from odradek.errors import ErrorCode
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import JoinGroupRequest
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.leave_group_request import MemberIdentity
from odradek.protocol.messages.leave_group_response import MemberResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

logger = logging.getLogger(__name__)

# JoinGroup from this version on: a new member first gets its id, then joins with it (KIP-394).
MEMBER_ID_REQUIRED_FROM = 4
# JoinGroup from this version on: a returning static leader is told to skip the assignment
# (KIP-814).
SKIP_ASSIGNMENT_FROM = 9


class Join(NamedTuple):
    """A JoinGroup request, who sent it, in which version, and the id that a new member would
    get."""

    request: JoinGroupRequest
    client: Client
    version: int
    new_member_id: str

    def protocols(self) -> dict[str, bytes]:
        return {protocol.name: protocol.metadata for protocol in self.request.protocols}


def join(
    group: ClassicGroup, event: Join, ticket: Ticket, limits: GroupLimits, now: Instant
) -> Effects:
    """JoinGroup: the ticket is answered now, or when the join phase ends."""
    effects = Effects()
    request = event.request
    member_id = request.member_id
    names = [protocol.name for protocol in request.protocols]
    if group.state is GroupState.DEAD:
        _refuse_join(effects, ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    elif not _accepts(group, member_id, limits):
        if member_id in group.members:
            rebalance.remove_member(group, group.members[member_id], effects)
        group.remove(member_id)
        _refuse_join(effects, ticket, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
    elif not group.supports_protocols(request.protocol_type, names):
        _refuse_join(effects, ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    elif member_id == NO_MEMBER_ID:
        _join_unknown(group, event, ticket, limits, effects, now)
    else:
        _join_known(group, event, ticket, limits, effects, now)
    return effects


def sync(
    group: ClassicGroup,
    request: SyncGroupRequest,
    ticket: Ticket,
    limits: GroupLimits,
    now: Instant,
) -> Effects:
    """SyncGroup: the leader's brings the assignment; each is answered when that is stored."""
    effects = Effects()
    code = _validate_sync(group, request)
    if code is not ErrorCode.NONE:
        effects.answers.append((ticket, SyncGroupResponse(error_code=code)))
        return effects
    member = group.members[request.member_id]
    rebalance.sync_received(group, request.member_id)
    if group.state is GroupState.STABLE:
        effects.answers.append((ticket, rebalance.synced(group, member)))
        return effects
    superseded = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    group.answer_sync(member, superseded, effects)
    member.awaiting_sync = ticket
    if group.is_leader(request.member_id):
        assignments = {item.member_id: item.assignment for item in request.assignments}
        effects.records.append(group_metadata_record(group, assignments))
        effects.on_stored = _assignment_stored(group, limits)
    return effects


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, now: Instant) -> ErrorCode:
    """Heartbeat: the member lives; REBALANCE_IN_PROGRESS tells it to join again."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = group.validate_member(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    rebalance.refresh_session(group.members[request.member_id], now)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(
    group: ClassicGroup, members: list[MemberIdentity], limits: GroupLimits, now: Instant
) -> tuple[list[MemberResponse], Effects]:
    """LeaveGroup: each named member goes; an administrator names static ones by instance id
    alone."""
    effects = Effects()
    responses = [
        MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=_leave_one(group, identity, effects),
        )
        for identity in members
    ]
    left = [response.member_id for response in responses if not response.error_code]
    if left and group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        rebalance.join_or_rebalance(group, limits, f"{left} left", effects, now)
    elif left:
        rebalance.complete_join_if_ready(group, effects, now)
    return responses, effects


def expire(group: ClassicGroup, limits: GroupLimits, now: Instant) -> Effects:
    """Does what has fallen due at `now`: sessions, the join phase, missing SyncGroups.

    Each timer is looked at once; what becomes due meanwhile is left to the next call.
    """
    effects = Effects()
    due = now.monotonic_ms
    for member_id, deadline in list(group.pending_joins.items()):
        if deadline <= due and group.pending_joins.pop(member_id, None) is not None:
            logger.info("group %s: pending member %s is gone", group.group_id, member_id)
            if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined():
                rebalance.complete_join(group, effects, now)
    for member in list(group.members.values()):
        if member.deadline_ms <= due and group.members.get(member.member_id) is member:
            _expire_session(group, member, limits, effects, now)
    if group.join_timer is not None and group.join_timer.deadline_ms <= due:
        rebalance.on_join_timer(group, limits, effects, now)
    if group.sync_deadline_ms <= due:
        rebalance.on_pending_sync_expired(group, limits, effects, now)
    return effects


def loaded(group: ClassicGroup, limits: GroupLimits, now: Instant) -> Effects:
    """The group has been read from the log: sessions begin anew, an oversized group rebalances."""
    effects = Effects()
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.update_subscribed_topics()
    for member in group.members.values():
        rebalance.refresh_session(member, now)
    if len(group.members) > limits.max_size:
        rebalance.prepare_rebalance(group, limits, "over group.max.size", effects, now)
    return effects


def unload(group: ClassicGroup, code: ErrorCode, now: Instant) -> Effects:
    """The shard goes: everybody who waits gets `code`, and the group is Dead."""
    effects = Effects()
    for member in group.members.values():
        group.answer_join(member, rebalance.join_error(code, member.member_id), effects)
        group.answer_sync(member, SyncGroupResponse(error_code=code), effects)
    group.transition_to(GroupState.DEAD, now.time_ms)
    return effects


# -- JoinGroup -------------------------------------------------------------------------------------


def _accepts(group: ClassicGroup, member_id: str, limits: GroupLimits) -> bool:
    """Whether ``group.max.size`` leaves a place. While joining, those who wait are counted, so that
    a group which is too large loses the members that join last."""
    member = group.members.get(member_id)
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        waits = member is not None and member.awaiting_join is not None
        return waits or group.awaiting_join_count < limits.max_size
    return member is not None or len(group.members) < limits.max_size


def _refuse_join(effects: Effects, ticket: Ticket, code: ErrorCode, member_id: str) -> None:
    effects.answers.append((ticket, rebalance.join_error(code, member_id)))


def _join_unknown(
    group: ClassicGroup,
    event: Join,
    ticket: Ticket,
    limits: GroupLimits,
    effects: Effects,
    now: Instant,
) -> None:
    """A member without an id: it gets one, and from version 4 on comes back with it."""
    instance_id = event.request.group_instance_id
    if instance_id is not None and instance_id in group.static_members:
        _replace_static_member(group, event, ticket, limits, effects, now)
    elif instance_id is None and event.version >= MEMBER_ID_REQUIRED_FROM:
        deadline = now.monotonic_ms + event.request.session_timeout_ms
        group.pending_joins[event.new_member_id] = deadline
        _refuse_join(effects, ticket, ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id)
    else:
        _add_member(group, event, event.new_member_id, ticket, limits, effects, now)


def _join_known(
    group: ClassicGroup,
    event: Join,
    ticket: Ticket,
    limits: GroupLimits,
    effects: Effects,
    now: Instant,
) -> None:
    """A member with an id joins: to begin with it, or again."""
    request = event.request
    member_id = request.member_id
    if member_id in group.pending_joins and request.group_instance_id is None:
        _add_member(group, event, member_id, ticket, limits, effects, now)
        return
    code = group.validate_member(member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        _refuse_join(effects, ticket, code, member_id)
        return
    member = group.members[member_id]
    if _must_rebalance(group, member, event.protocols()):
        _update_member(group, member, event, ticket, effects)
        reason = f"{member_id} joins again: {request.reason or 'no reason given'}"
        rebalance.join_or_rebalance(group, limits, reason, effects, now)
    else:
        # Nothing changed: it may have missed the answer, so it hears of the generation that there
        # is.
        effects.answers.append((ticket, rebalance.joined(group, member)))


def _must_rebalance(group: ClassicGroup, member: Member, protocols: dict[str, bytes]) -> bool:
    """A rejoin during the join phase, of a stable group's leader, or with other metadata."""
    if group.state is GroupState.PREPARING_REBALANCE:
        return True
    if list(member.protocols.items()) != list(protocols.items()):
        return True
    return group.state is GroupState.STABLE and group.is_leader(member.member_id)


def _add_member(
    group: ClassicGroup,
    event: Join,
    member_id: str,
    ticket: Ticket,
    limits: GroupLimits,
    effects: Effects,
    now: Instant,
) -> None:
    """Adds a new member. It has no session yet, as it cannot send heartbeats while it waits: it is
    given `new_member_join_timeout_ms` instead, so that clients that gave up do not pile up."""
    request = event.request
    if group.state is GroupState.PREPARING_REBALANCE and (group.previous_state is GroupState.EMPTY):
        group.new_member_added = True
    if not group.members:
        group.protocol_type = request.protocol_type
    member = Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=event.client.client_id,
        client_host=event.client.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=event.protocols(),
        is_new=True,
        deadline_ms=now.monotonic_ms + limits.new_member_join_timeout_ms,
    )
    group.add(member, ticket)
    rebalance.join_or_rebalance(group, limits, f"{member_id} joins", effects, now)


def _update_member(
    group: ClassicGroup, member: Member, event: Join, ticket: Ticket, effects: Effects
) -> None:
    """Takes over what the member now says of itself, and its new ticket."""
    superseded = rebalance.join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    group.answer_join(member, superseded, effects)
    member.protocols = event.protocols()
    member.rebalance_timeout_ms = event.request.rebalance_timeout_ms
    member.session_timeout_ms = event.request.session_timeout_ms
    group.set_awaiting_join(member, ticket)


def _replace_static_member(
    group: ClassicGroup,
    event: Join,
    ticket: Ticket,
    limits: GroupLimits,
    effects: Effects,
    now: Instant,
) -> None:
    """A static member comes back without its id: it takes over the place of its former self, and a
    stable group whose protocol stays the same does not rebalance (KIP-345)."""
    old_leader = group.leader_id
    old = group.members[group.static_members[event.request.group_instance_id or ""]]
    member = _take_over(group, old, event.new_member_id, effects)
    rebalance.refresh_session(member, now)
    _update_member(group, member, event, ticket, effects)
    if group.state is GroupState.STABLE:
        if group.select_protocol() == group.protocol_name:
            assignments = {m.member_id: m.assignment for m in group.members.values()}
            effects.records.append(group_metadata_record(group, assignments))
            effects.on_stored = _static_member_stored(group, member, old, old_leader, event.version)
            return
        rebalance.join_or_rebalance(
            group, limits, f"{member.member_id} changes the protocol", effects, now
        )
    elif group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may already assign to the old id; nobody would fetch that assignment.
        rebalance.prepare_rebalance(
            group, limits, f"static member {member.member_id} is back", effects, now
        )
    else:
        rebalance.complete_join_if_ready(group, effects, now)


def _take_over(group: ClassicGroup, old: Member, new_id: str, effects: Effects) -> Member:
    """A copy of a static member under a new id takes its place; who waits under the old is
    fenced."""
    fenced = ErrorCode.FENCED_INSTANCE_ID
    group.answer_join(old, rebalance.join_error(fenced, old.member_id), effects)
    group.answer_sync(old, SyncGroupResponse(error_code=fenced), effects)
    # Not new any more, as in Kafka: its session does not run while it waits.
    member = replace(old, member_id=new_id, is_new=False)
    _swap(group, old, member)
    return member


def _swap(group: ClassicGroup, out: Member, into: Member) -> None:
    """Puts one static member into the place of another of the same instance id."""
    group.members = {
        member.member_id: member
        for member in (into if each is out else each for each in group.members.values())
    }
    group.pending_syncs.discard(out.member_id)
    group.static_members[into.group_instance_id or ""] = into.member_id
    if group.is_leader(out.member_id):
        group.leader_id = into.member_id


def _static_member_stored(
    group: ClassicGroup, member: Member, old: Member, old_leader: str | None, version: int
) -> Callable[[ErrorCode, Instant], Effects]:
    """What follows when the record that renames a static member is stored, or is not."""

    def stored(code: ErrorCode, now: Instant) -> Effects:
        effects = Effects()
        if group.members.get(member.member_id) is not member:
            return effects
        if code is not ErrorCode.NONE:
            group.answer_join(member, rebalance.join_error(code), effects)
            _swap(group, member, old)
            rebalance.refresh_session(old, now)
            return effects
        group.answer_join(member, _returned(group, member, old_leader, version), effects)
        return effects

    return stored


def _returned(
    group: ClassicGroup, member: Member, old_leader: str | None, version: int
) -> JoinGroupResponse:
    """The answer to a static member that came back to a stable group.

    A returning leader must not assign again. Before version 9 it is told the old leader's id, which
    is not its own any more; from version 9 on it is told to skip the assignment.
    """
    answer = rebalance.joined(group, member)
    if version < SKIP_ASSIGNMENT_FROM:
        answer.members = []
        answer.leader = old_leader or ""
    else:
        answer.skip_assignment = group.is_leader(member.member_id)
    return answer


# -- the other events ------------------------------------------------------------------------------


def _validate_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = group.validate_member(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or (
        request.protocol_name not in (None, group.protocol_name)
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _assignment_stored(
    group: ClassicGroup, limits: GroupLimits
) -> Callable[[ErrorCode, Instant], Effects]:
    """What follows when the leader's assignment is stored (the replay of the record has put it into
    the members), or is not. The group may have moved on meanwhile: then nothing follows."""
    generation_id = group.generation_id

    def stored(code: ErrorCode, now: Instant) -> Effects:
        effects = Effects()
        if (
            group.state is not GroupState.COMPLETING_REBALANCE
            or group.generation_id != generation_id
        ):
            return effects
        if code is ErrorCode.NONE:
            group.transition_to(GroupState.STABLE, now.time_ms)
            rebalance.answer_syncs(group, code, effects, now)
        else:
            rebalance.reset_assignments(group, code, effects, now)
            reason = f"{code.name} while storing the assignment"
            rebalance.join_or_rebalance(group, limits, reason, effects, now)
        return effects

    return stored


def _leave_one(group: ClassicGroup, identity: MemberIdentity, effects: Effects) -> ErrorCode:
    """Removes one member; pending members just lose their place."""
    member_id = identity.member_id
    if member_id in group.pending_joins:
        group.remove(member_id)
        return ErrorCode.NONE
    if member_id == NO_MEMBER_ID:
        holder = group.static_members.get(identity.group_instance_id or "")
        if holder is None or identity.group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = holder
    else:
        code = group.validate_member(member_id, identity.group_instance_id)
        if code is not ErrorCode.NONE:
            return code
    logger.info(
        "group %s: %s leaves (%s)", group.group_id, member_id, identity.reason or "no reason given"
    )
    rebalance.remove_member(group, group.members[member_id], effects)
    return ErrorCode.NONE


def _expire_session(
    group: ClassicGroup, member: Member, limits: GroupLimits, effects: Effects, now: Instant
) -> None:
    """The member's session has ended, unless it waits for us rather than we for it."""
    if member.has_satisfied_heartbeat():
        member.deadline_ms = inf
        return
    logger.info("group %s: the session of %s has ended", group.group_id, member.member_id)
    rebalance.remove_member(group, member, effects)
    reason = f"the session of {member.member_id} ended"
    rebalance.member_removed(group, limits, reason, effects, now)
