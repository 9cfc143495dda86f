"""The rebalance of a classic group: how the join phase begins and ends, and who is told what.

Kafka's rules (``GroupMetadataManager``: prepareRebalance, completeClassicGroupJoin,
expirePendingSync and their neighbours), as functions of (group, effects, now). A rebalance has two
phases: in PreparingRebalance every member must join again; in CompletingRebalance the leader hands
in the assignment and every member fetches its own with SyncGroup. Events of clients and of time are
in `classic`.
"""

from __future__ import annotations

import logging
from math import inf

from odradek.coordinator.group.classic.classic_group import (
    ClassicGroup,
    GroupState,
    JoinTimer,
    Member,
)
from odradek.coordinator.group.classic.effects import Effects, GroupLimits, Instant
from odradek.coordinator.group.group_records import group_metadata_record
from odradek.errors import ErrorCode
from odradek.protocol.messages.join_group_response import JoinGroupResponse
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

logger = logging.getLogger(__name__)

# A group whose members asked for no rebalance time-out at all must not spin while it waits for
# their sessions to end.
REBALANCE_TIMEOUT_MS_MIN = 100
# JoinGroup from this version on: the protocol's name may be null.
NULL_PROTOCOL_NAME_FROM = 7


def refresh_session(member: Member, now: Instant) -> None:
    """The member has shown that it is alive: its session ends `session_timeout_ms` from now."""
    member.deadline_ms = now.monotonic_ms + member.session_timeout_ms


def join_or_rebalance(
    group: ClassicGroup, limits: GroupLimits, reason: str, effects: Effects, now: Instant
) -> None:
    """Begins a rebalance where one may begin, else ends the join phase if everybody is there."""
    if group.can_rebalance():
        prepare_rebalance(group, limits, reason, effects, now)
    else:
        complete_join_if_ready(group, effects, now)


def prepare_rebalance(
    group: ClassicGroup, limits: GroupLimits, reason: str, effects: Effects, now: Instant
) -> None:
    """Begins the join phase. A group that was empty waits the initial delay for further members."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, effects, now)
    _cancel_sync_timer(group)
    initial = group.state is GroupState.EMPTY
    group.transition_to(GroupState.PREPARING_REBALANCE, now.time_ms)
    logger.info(
        "group %s: rebalance of generation %d (%s)", group.group_id, group.generation_id, reason
    )
    if initial:
        delay = limits.initial_rebalance_delay_ms
        remaining = max(group.rebalance_timeout_ms() - delay, 0)
        group.join_timer = JoinTimer(now.monotonic_ms + delay, remaining)
    elif group.has_all_members_joined():
        complete_join(group, effects, now)
    else:
        _arm_join_timer(group, now)


def complete_join_if_ready(group: ClassicGroup, effects: Effects, now: Instant) -> None:
    """Ends the join phase when all have joined; an initial rebalance ends by its timer only."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.has_all_members_joined()
    ):
        complete_join(group, effects, now)


def on_join_timer(group: ClassicGroup, limits: GroupLimits, effects: Effects, now: Instant) -> None:
    """The join timer has run out: ends the join phase, or extends an initial one that still
    grows."""
    timer = group.join_timer
    assert timer is not None
    if timer.remaining_ms and group.new_member_added:
        group.new_member_added = False
        delay = min(limits.initial_rebalance_delay_ms, timer.remaining_ms)
        left = max(timer.remaining_ms - limits.initial_rebalance_delay_ms, 0)
        group.join_timer = JoinTimer(now.monotonic_ms + delay, left)
    else:
        complete_join(group, effects, now)


def complete_join(group: ClassicGroup, effects: Effects, now: Instant) -> None:
    """Ends the join phase: dynamic members that did not join are out, a new generation begins."""
    group.join_timer = None
    for member in list(group.members.values()):
        if member.awaiting_join is None and member.group_instance_id is None:
            logger.info("group %s: %s did not rejoin", group.group_id, member.member_id)
            group.remove(member.member_id)
    if not group.elect_joined_leader() and group.members:
        # Only static members are left, and none has joined: wait until their sessions end.
        logger.warning("group %s: no member rejoined", group.group_id)
        _arm_join_timer(group, now)
        return
    group.init_next_generation(now.time_ms)
    group.new_member_added = False
    if group.state is GroupState.EMPTY:
        logger.info("group %s: generation %d is empty", group.group_id, group.generation_id)
        effects.records.append(group_metadata_record(group, {}))
        return
    logger.info(
        "group %s: generation %d has %d members",
        group.group_id,
        group.generation_id,
        len(group.members),
    )
    for member in group.members.values():
        group.answer_join(member, joined(group, member), effects)
        refresh_session(member, now)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    group.sync_deadline_ms = now.monotonic_ms + _rebalance_timeout_ms(group)


def joined(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """The answer to a member of the current generation; the leader gets everybody's metadata."""
    leader = group.is_leader(member.member_id)
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=group.described_members() if leader else [],
    )


def in_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """A missing protocol name is null in versions that have null, and empty before."""
    if not response.protocol_name:
        response.protocol_name = None if version >= NULL_PROTOCOL_NAME_FROM else ""
    return response


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """A JoinGroup answer that only says what is wrong (a missing protocol name is null or "")."""
    return JoinGroupResponse(error_code=code, member_id=member_id)


def on_pending_sync_expired(
    group: ClassicGroup, limits: GroupLimits, effects: Effects, now: Instant
) -> None:
    """Members that joined but never sent SyncGroup are removed, and the others rebalance."""
    missing = sorted(group.pending_syncs)
    group.sync_deadline_ms = inf
    if not missing or group.state is GroupState.EMPTY:
        return
    for member_id in missing:
        remove_member(group, group.members[member_id], effects)
    prepare_rebalance(group, limits, f"no SyncGroup from {missing}", effects, now)


def remove_member(group: ClassicGroup, member: Member, effects: Effects) -> None:
    """Takes a member out of the group; what it still waits for is answered UNKNOWN_MEMBER_ID."""
    error = ErrorCode.UNKNOWN_MEMBER_ID
    group.answer_join(member, join_error(error), effects)
    group.answer_sync(member, SyncGroupResponse(error_code=error), effects)
    group.remove(member.member_id)


def member_removed(
    group: ClassicGroup, limits: GroupLimits, reason: str, effects: Effects, now: Instant
) -> None:
    """Goes on after members have gone: a settled group rebalances, a joining one may be
    complete."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        join_or_rebalance(group, limits, reason, effects, now)
    elif group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined():
        complete_join(group, effects, now)


def sync_received(group: ClassicGroup, member_id: str) -> None:
    """The member has sent its SyncGroup; with the last one the sync timer ends."""
    group.pending_syncs.discard(member_id)
    if not group.pending_syncs:
        group.sync_deadline_ms = inf


def reset_assignments(group: ClassicGroup, code: ErrorCode, effects: Effects, now: Instant) -> None:
    """Forgets the assignments; members that wait for theirs get `code` and join again."""
    for member in group.members.values():
        member.assignment = b""
    answer_syncs(group, code, effects, now)


def answer_syncs(group: ClassicGroup, code: ErrorCode, effects: Effects, now: Instant) -> None:
    """Answers every waiting SyncGroup: with the member's assignment, or with an error."""
    for member in group.members.values():
        answer = SyncGroupResponse(error_code=code)
        if code is ErrorCode.NONE:
            answer = synced(group, member)
        if group.answer_sync(member, answer, effects):
            refresh_session(member, now)


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """The member's assignment in the current generation."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _cancel_sync_timer(group: ClassicGroup) -> None:
    group.pending_syncs.clear()
    group.sync_deadline_ms = inf


def _rebalance_timeout_ms(group: ClassicGroup) -> int:
    return max(group.rebalance_timeout_ms(), REBALANCE_TIMEOUT_MS_MIN)


def _arm_join_timer(group: ClassicGroup, now: Instant) -> None:
    group.join_timer = JoinTimer(now.monotonic_ms + _rebalance_timeout_ms(group))
