"""A group of the classic protocol: its handlers for requests and timers. Pure.

Kafka's rules (``ClassicGroup``, ``GroupMetadataManager``: classicGroupJoin, -Sync, -Heartbeat,
-Leave, prepareRebalance and their neighbours). A rebalance has two phases: in PreparingRebalance
every member must join again; in CompletingRebalance the leader hands in the assignment and every
member fetches its own with SyncGroup.

Events return a `CoordinatorResult`. JoinGroup and SyncGroup carry a ticket, which comes back in
`CoordinatorResult.completed` exactly once. The state that the handlers change is
`GroupMembership`.

A request that is sent again while its first copy still waits takes the first one's place, as in
Kafka; the first is answered REBALANCE_IN_PROGRESS, where Kafka never answers it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TypeAlias

from odradek.coordinator.coordinator_result import (
    CoordinatorResult,
    CoordinatorTimer,
    Ticket,
    Timestamp,
)
from odradek.coordinator.group.classic.classic_member import (
    NO_MEMBER_ID,
    ClassicSettings,
    GroupState,
    JoinEvent,
    JoinTimer,
    Member,
    join_error,
)
from odradek.coordinator.group.classic.group_membership import GroupMembership
from odradek.errors import ErrorCode
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_response import (
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from odradek.protocol.messages.leave_group_request import MemberIdentity
from odradek.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from odradek.protocol.messages.sync_group_response import SyncGroupResponse

logger = logging.getLogger(__name__)

GroupResult: TypeAlias = CoordinatorResult[None]

# JoinGroup from this version on: a new member first gets its id, then joins with it (KIP-394).
MEMBER_ID_REQUIRED_FROM = 4
# JoinGroup from this version on: the response to a returning static leader says to skip the
# assignment (KIP-814).
SKIP_ASSIGNMENT_FROM = 9
# A group whose members asked for no rebalance time-out at all must not spin while it waits for
# their sessions to end.
REBALANCE_TIMEOUT_MS_MIN = 100
# Pause after which expired members are removed again, when the record of the emptied group could
# not be appended. Each attempt writes a line to the log.
EXPIRY_RETRY_MS = 1_000


@dataclass(slots=True)
class ClassicGroup(GroupMembership):
    """A classic group. Its owner is the shard of its partition; the event loop alone changes it."""

    # -- events ------------------------------------------------------------------------------------

    def join(self, event: JoinEvent, settings: ClassicSettings, now: Timestamp) -> GroupResult:
        """JoinGroup: the ticket is answered now, or when the join phase ends."""
        result = CoordinatorResult([], None)
        request = event.request
        member_id = request.member_id
        names = [protocol.name for protocol in request.protocols]
        if self.state is GroupState.DEAD:
            result.completed.append(event.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))
        elif not self._accepts(member_id, settings):
            if member_id in self.members:
                self.remove_member(self.members[member_id], result)
            self.remove(member_id)
            result.completed.append(event.refused(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
        elif not self.supports_protocols(request.protocol_type, names):
            result.completed.append(event.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif member_id == NO_MEMBER_ID:
            self._join_unknown(event, settings, result, now)
        else:
            self._join_known(event, settings, result, now)
        return self._with_timer(result)

    def sync(
        self, request: SyncGroupRequest, ticket: Ticket, settings: ClassicSettings, now: Timestamp
    ) -> GroupResult:
        """SyncGroup: the leader's brings the assignment; each is answered when that is stored."""
        result = CoordinatorResult([], None)
        code = self._validate_sync(request)
        if code is not ErrorCode.NONE:
            result.completed.append((ticket, SyncGroupResponse(error_code=code)))
            return self._with_timer(result)
        member = self.members[request.member_id]
        self.sync_received(request.member_id)
        if self.state is GroupState.STABLE:
            result.completed.append((ticket, self.synced(member)))
            return self._with_timer(result)
        superseded = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self.answer_sync(member, superseded, result)
        member.awaiting_sync = ticket
        if self.is_leader(request.member_id):
            assignments = {item.member_id: item.assignment for item in request.assignments}
            result.records.append(self.metadata_record(assignments))
            result.after_commit = self._assignment_stored(settings)
        return self._with_timer(result)

    def heartbeat(self, request: HeartbeatRequest, now: Timestamp) -> ErrorCode:
        """Heartbeat: the member lives; REBALANCE_IN_PROGRESS asks it to join again."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = self.validate_member(request.member_id, request.group_instance_id)
        if code is not ErrorCode.NONE:
            return code
        if request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self.members[request.member_id].refresh_session(now)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self, members: list[MemberIdentity], settings: ClassicSettings, now: Timestamp
    ) -> CoordinatorResult[LeaveGroupResponse]:
        """Remove the named members (LeaveGroup). Administrators name static members by instance id
        alone.

        Only a group that becomes empty writes a record. The members are copied only if the request
        may name all of them, so a LeaveGroup of one member does not copy a large group.
        """
        may_become_empty = len(members) >= len(self.members)
        draft = self.draft(self.members) if may_become_empty else self
        result = CoordinatorResult([], None)
        responses = [
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=draft._leave_one(identity, result),
            )
            for identity in members
        ]
        left = [response.member_id for response in responses if not response.error_code]
        if left and draft.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            draft.join_or_rebalance(settings, f"{left} left", result, now)
        elif left:
            draft.complete_join_if_ready(result, now)
        draft._with_timer(result)
        self._install_after_append(draft, result)
        return CoordinatorResult(
            result.records,
            LeaveGroupResponse(members=responses),
            result.timers,
            result.completed,
            result.after_replay,
            after_failed_append=result.after_failed_append,
        )

    def _with_timer(self, result: GroupResult) -> GroupResult:
        result.timers.append(CoordinatorTimer(self.group_id, self.next_deadline_ms()))
        return result

    def expire(self, settings: ClassicSettings, now: Timestamp) -> GroupResult:
        """Handle the deadlines that have passed at `now`: sessions, the join phase, missing
        SyncGroups.

        Each timer is looked at once. Timers that become due in the meantime wait for the next call.
        When the record of an emptied group cannot be appended, the call is repeated after
        `EXPIRY_RETRY_MS`.
        """
        result = CoordinatorResult([], None)
        draft = self.draft(self.members) if self._may_expire_all(now.monotonic_ms) else self
        draft._expire_due(settings, result, now)
        draft._with_timer(result)
        self._install_after_append(draft, result)
        return result

    def _may_expire_all(self, due: float) -> bool:
        """Whether the deadlines that have passed may remove all members. True too often costs only
        a copy."""
        join_ends = self.join_timer is not None and self.join_timer.deadline_ms <= due
        sync_ends = self.sync_deadline_ms <= due
        return all(
            member.deadline_ms <= due
            or (join_ends and member.awaiting_join is None)
            or (sync_ends and member.member_id in self.pending_syncs)
            for member in self.members.values()
        )

    def _expire_due(self, settings: ClassicSettings, result: GroupResult, now: Timestamp) -> None:
        due = now.monotonic_ms
        for member_id, deadline in list(self.pending_joins.items()):
            if deadline <= due and self.pending_joins.pop(member_id, None) is not None:
                logger.info("group %s: pending member %s is gone", self.group_id, member_id)
                if self.state is GroupState.PREPARING_REBALANCE and self.has_all_members_joined():
                    self.complete_join(result, now)
        for member in list(self.members.values()):
            if member.deadline_ms <= due and self.members.get(member.member_id) is member:
                self._expire_session(member, settings, result, now)
        if self.join_timer is not None and self.join_timer.deadline_ms <= due:
            self.on_join_timer(settings, result, now)
        if self.sync_deadline_ms <= due:
            self.on_pending_sync_expired(settings, result, now)

    # -- writes ------------------------------------------------------------------------------------

    def _install_after_append(self, draft: ClassicGroup, result: GroupResult) -> None:
        """Install the draft when its record is appended, or now if it has none.

        A failed append leaves this group as it was. Kafka keeps the removed members and the new
        generation in memory only and logs a warning, so a restart finds another group.
        """
        if draft is self:
            return
        if not result.records:
            self.install(draft)
            return
        result.after_replay = partial(self.install, draft)
        result.after_failed_append = partial(self._draft_failed, result.completed)

    def _draft_failed(
        self, completed: list[tuple[Ticket, object]], code: ErrorCode, now: Timestamp
    ) -> GroupResult:
        """Respond with `code` to the waiting requests that the draft completed. Their members stay
        in the group and can send them again."""
        result = CoordinatorResult([], None)
        tickets = {ticket for ticket, _ in completed}
        for member in self.members.values():
            if tickets.isdisjoint((member.awaiting_join, member.awaiting_sync)):
                continue
            self.answer_join(member, join_error(code, member.member_id), result)
            self.answer_sync(member, SyncGroupResponse(error_code=code), result)
            if member.deadline_ms == inf or member.deadline_ms <= now.monotonic_ms:
                member.refresh_session(now)
        retry_ms = max(self.next_deadline_ms(), now.monotonic_ms + EXPIRY_RETRY_MS)
        result.timers.append(CoordinatorTimer(self.group_id, retry_ms))
        return result

    def loaded(self, settings: ClassicSettings, now: Timestamp) -> GroupResult:
        """The group was loaded: sessions begin again, an oversized group rebalances."""
        result = CoordinatorResult([], None)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.update_subscribed_topics()
        for member in self.members.values():
            member.refresh_session(now)
        if len(self.members) > settings.max_size:
            self.prepare_rebalance(settings, "over group.max.size", result, now)
        return self._with_timer(result)

    def downgraded(self, settled: bool, settings: ClassicSettings, now: Timestamp) -> GroupResult:
        """The group was a consumer group. Unless it is settled, its members have to join again."""
        result = CoordinatorResult([], None)
        for member in self.members.values():
            member.refresh_session(now)
        if not settled:
            self.prepare_rebalance(settings, "downgrade", result, now)
        return self._with_timer(result)

    def unload(self, code: ErrorCode, now: Timestamp) -> GroupResult:
        """The shard goes: waiting requests are answered with `code`, and the group is Dead."""
        result = CoordinatorResult([], None)
        for member in self.members.values():
            self.answer_join(member, join_error(code, member.member_id), result)
            self.answer_sync(member, SyncGroupResponse(error_code=code), result)
        self.transition_to(GroupState.DEAD, now.time_ms)
        return result

    # -- JoinGroup ---------------------------------------------------------------------------------

    def _accepts(self, member_id: str, settings: ClassicSettings) -> bool:
        """Whether ``group.max.size`` admits the member. During the join phase only waiting members
        are counted, so that a group which is too large loses the members that join last."""
        member = self.members.get(member_id)
        if self.state is GroupState.EMPTY:
            return True
        if self.state is GroupState.PREPARING_REBALANCE:
            waits = member is not None and member.awaiting_join is not None
            return waits or self.awaiting_join_count < settings.max_size
        return member is not None or len(self.members) < settings.max_size

    def _join_unknown(
        self, event: JoinEvent, settings: ClassicSettings, result: GroupResult, now: Timestamp
    ) -> None:
        """A member without an id: it gets one, and from version 4 on comes back with it."""
        instance_id = event.request.group_instance_id
        if instance_id is not None and instance_id in self.static_members:
            self._replace_static_member(event, settings, result, now)
        elif instance_id is None and event.version >= MEMBER_ID_REQUIRED_FROM:
            deadline = now.monotonic_ms + event.request.session_timeout_ms
            self.pending_joins[event.new_member_id] = deadline
            result.completed.append(
                event.refused(ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id)
            )
        else:
            self._add_member(event, event.new_member_id, settings, result, now)

    def _join_known(
        self, event: JoinEvent, settings: ClassicSettings, result: GroupResult, now: Timestamp
    ) -> None:
        """A member with an id joins: to begin with it, or again."""
        request = event.request
        member_id = request.member_id
        if member_id in self.pending_joins and request.group_instance_id is None:
            self._add_member(event, member_id, settings, result, now)
            return
        code = self.validate_member(member_id, request.group_instance_id)
        if code is not ErrorCode.NONE:
            result.completed.append(event.refused(code, member_id))
            return
        member = self.members[member_id]
        if self._must_rebalance(member, event.protocols()):
            self._update_member(member, event, result)
            reason = f"{member_id} joins again: {request.reason or 'no reason given'}"
            self.join_or_rebalance(settings, reason, result, now)
        else:
            # Nothing changed: it may have missed the response for this generation.
            result.completed.append((event.ticket, self.joined(member)))

    def _must_rebalance(self, member: Member, protocols: dict[str, bytes]) -> bool:
        """A rejoin during the join phase, of a stable group's leader, or with other metadata."""
        if self.state is GroupState.PREPARING_REBALANCE:
            return True
        if list(member.protocols.items()) != list(protocols.items()):
            return True
        return self.state is GroupState.STABLE and self.is_leader(member.member_id)

    def _add_member(
        self,
        event: JoinEvent,
        member_id: str,
        settings: ClassicSettings,
        result: GroupResult,
        now: Timestamp,
    ) -> None:
        """Adds a new member. It cannot send heartbeats while it waits, so it has no session yet. It
        has `new_member_join_timeout_ms` instead, so that clients that gave up do not pile up."""
        request = event.request
        if self.state is GroupState.PREPARING_REBALANCE and (
            self.previous_state is GroupState.EMPTY
        ):
            self.new_member_added = True
        if not self.members:
            self.protocol_type = request.protocol_type
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=event.client.client_id,
            client_host=event.client.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=event.protocols(),
            is_new=True,
            deadline_ms=now.monotonic_ms + settings.new_member_join_timeout_ms,
        )
        self.add(member, event.ticket)
        self.join_or_rebalance(settings, f"{member_id} joins", result, now)

    def _update_member(self, member: Member, event: JoinEvent, result: GroupResult) -> None:
        """Takes over what the member now says of itself, and its new ticket."""
        superseded = join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self.answer_join(member, superseded, result)
        member.protocols = event.protocols()
        member.rebalance_timeout_ms = event.request.rebalance_timeout_ms
        member.session_timeout_ms = event.request.session_timeout_ms
        self.set_awaiting_join(member, event.ticket)

    def _replace_static_member(
        self, event: JoinEvent, settings: ClassicSettings, result: GroupResult, now: Timestamp
    ) -> None:
        """A static member comes back without its id and replaces the member of its instance id. A
        stable group whose protocol stays the same does not rebalance (KIP-345)."""
        old_leader = self.leader_id
        old_id = self.static_members[event.request.group_instance_id or ""]
        draft = self.draft([old_id])
        member = draft._take_over(draft.members[old_id], event.new_member_id, result)
        member.refresh_session(now)
        draft._update_member(member, event, result)
        if draft.state is GroupState.STABLE and draft.select_protocol() == draft.protocol_name:
            assignments = {m.member_id: m.assignment for m in draft.members.values()}
            result.records.append(draft.metadata_record(assignments))
            draft._with_timer(result)
            self._install_after_append(draft, result)
            result.after_failed_append = partial(
                self._static_member_not_stored, old_id, event, result.completed
            )
            result.after_commit = self._static_member_stored(
                member.member_id, old_leader, event.version
            )
            return
        self.install(draft)
        if self.state is GroupState.STABLE:
            self.join_or_rebalance(
                settings, f"{member.member_id} changes the protocol", result, now
            )
        elif self.state is GroupState.COMPLETING_REBALANCE:
            # The leader may already assign to the old id; no member would fetch that assignment.
            self.prepare_rebalance(
                settings, f"static member {member.member_id} is back", result, now
            )
        else:
            self.complete_join_if_ready(result, now)

    def _take_over(self, old: Member, new_id: str, result: GroupResult) -> Member:
        """A copy of a static member under a new id takes its place; who waits under the old is
        fenced."""
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.answer_join(old, join_error(fenced, old.member_id), result)
        self.answer_sync(old, SyncGroupResponse(error_code=fenced), result)
        # No longer new, as in Kafka: its session does not run while it waits.
        member = replace(old, member_id=new_id, is_new=False)
        self.members = {
            each.member_id: each
            for each in (member if each is old else each for each in self.members.values())
        }
        self.pending_syncs.discard(old.member_id)
        self.static_members[member.group_instance_id or ""] = new_id
        if self.is_leader(old.member_id):
            self.leader_id = new_id
        return member

    def _static_member_stored(
        self, member_id: str, old_leader: str | None, version: int
    ) -> Callable[[ErrorCode, Timestamp], GroupResult]:
        """Return the continuation for the time when the record that renames a static member is
        committed, or is not in time. In both cases the member keeps its new id, because the record
        stays in the log."""

        def stored(code: ErrorCode, now: Timestamp) -> GroupResult:
            result = CoordinatorResult([], None)
            member = self.members.get(member_id)
            if member is None:
                return self._with_timer(result)
            if code is ErrorCode.NONE:
                answer = self._returned(member, old_leader, version)
            else:
                answer = join_error(code)
                member.refresh_session(now)
            self.answer_join(member, answer, result)
            return self._with_timer(result)

        return stored

    def _static_member_not_stored(
        self,
        old_id: str,
        event: JoinEvent,
        completed: list[tuple[Ticket, object]],
        code: ErrorCode,
        now: Timestamp,
    ) -> GroupResult:
        """The record that renames a static member was not appended: it keeps its old id, and its
        session begins again, as in Kafka."""
        result = self._draft_failed(completed, code, now)
        self.members[old_id].refresh_session(now)
        result.completed.append(event.refused(code, NO_MEMBER_ID))
        return self._with_timer(result)

    def _returned(self, member: Member, old_leader: str | None, version: int) -> JoinGroupResponse:
        """The answer to a static member that came back to a stable group.

        A returning leader must not assign again. Before version 9 the response names the old
        leader's id, which is no longer its own. From version 9 on it says to skip the assignment.
        """
        answer = self.joined(member)
        if version < SKIP_ASSIGNMENT_FROM:
            answer.members = []
            answer.leader = old_leader or ""
        else:
            answer.skip_assignment = self.is_leader(member.member_id)
        return answer

    # -- the other events --------------------------------------------------------------------------

    def _validate_sync(self, request: SyncGroupRequest) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = self.validate_member(request.member_id, request.group_instance_id)
        if code is not ErrorCode.NONE:
            return code
        if request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self.protocol_type) or (
            request.protocol_name not in (None, self.protocol_name)
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _assignment_stored(
        self, settings: ClassicSettings
    ) -> Callable[[ErrorCode, Timestamp], GroupResult]:
        """The continuation when the leader's assignment is stored, or is not. Its replay changed
        the members. Nothing follows when the group has begun another rebalance since."""
        generation_id = self.generation_id

        def stored(code: ErrorCode, now: Timestamp) -> GroupResult:
            result = CoordinatorResult([], None)
            if (
                self.state is not GroupState.COMPLETING_REBALANCE
                or self.generation_id != generation_id
            ):
                return self._with_timer(result)
            if code is ErrorCode.NONE:
                self.transition_to(GroupState.STABLE, now.time_ms)
                self.answer_syncs(code, result, now)
            else:
                self.reset_assignments(code, result, now)
                reason = f"{code.name} while storing the assignment"
                self.join_or_rebalance(settings, reason, result, now)
            return self._with_timer(result)

        return stored

    def _leave_one(self, identity: MemberIdentity, result: GroupResult) -> ErrorCode:
        """Removes one member; pending members just lose their place."""
        member_id = identity.member_id
        if member_id in self.pending_joins:
            self.remove(member_id)
            return ErrorCode.NONE
        if member_id == NO_MEMBER_ID:
            holder = self.static_members.get(identity.group_instance_id or "")
            if holder is None or identity.group_instance_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = holder
        else:
            code = self.validate_member(member_id, identity.group_instance_id)
            if code is not ErrorCode.NONE:
                return code
        logger.info(
            "group %s: %s leaves (%s)",
            self.group_id,
            member_id,
            identity.reason or "no reason given",
        )
        self.remove_member(self.members[member_id], result)
        return ErrorCode.NONE

    def _expire_session(
        self, member: Member, settings: ClassicSettings, result: GroupResult, now: Timestamp
    ) -> None:
        """The member's session has ended, unless it waits for us rather than we for it."""
        if member.has_satisfied_heartbeat():
            member.deadline_ms = inf
            return
        logger.info("group %s: the session of %s has ended", self.group_id, member.member_id)
        self.remove_member(member, result)
        reason = f"the session of {member.member_id} ended"
        self.member_removed(settings, reason, result, now)

    def join_or_rebalance(
        self, settings: ClassicSettings, reason: str, result: GroupResult, now: Timestamp
    ) -> None:
        """Begins a rebalance where one may begin, else ends the join phase if all have joined."""
        if self.can_rebalance():
            self.prepare_rebalance(settings, reason, result, now)
        else:
            self.complete_join_if_ready(result, now)

    def prepare_rebalance(
        self, settings: ClassicSettings, reason: str, result: GroupResult, now: Timestamp
    ) -> None:
        """Begins the join phase. An empty group waits the initial delay for more members."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            self.reset_assignments(ErrorCode.REBALANCE_IN_PROGRESS, result, now)
        self._cancel_sync_timer()
        initial = self.state is GroupState.EMPTY
        self.transition_to(GroupState.PREPARING_REBALANCE, now.time_ms)
        logger.info(
            "group %s: rebalance of generation %d (%s)", self.group_id, self.generation_id, reason
        )
        if initial:
            delay = settings.initial_rebalance_delay_ms
            remaining = max(self.rebalance_timeout_ms() - delay, 0)
            self.join_timer = JoinTimer(now.monotonic_ms + delay, remaining)
        elif self.has_all_members_joined():
            self.complete_join(result, now)
        else:
            self._arm_join_timer(now)

    def complete_join_if_ready(self, result: GroupResult, now: Timestamp) -> None:
        """Ends the join phase when all have joined; an initial rebalance ends by its timer only."""
        if (
            self.state is GroupState.PREPARING_REBALANCE
            and self.previous_state is not GroupState.EMPTY
            and self.has_all_members_joined()
        ):
            self.complete_join(result, now)

    def on_join_timer(self, settings: ClassicSettings, result: GroupResult, now: Timestamp) -> None:
        """The join timer has run out: ends the join phase, or extends an initial one that still
        grows."""
        timer = self.join_timer
        assert timer is not None
        if timer.remaining_ms and self.new_member_added:
            self.new_member_added = False
            delay = min(settings.initial_rebalance_delay_ms, timer.remaining_ms)
            left = max(timer.remaining_ms - settings.initial_rebalance_delay_ms, 0)
            self.join_timer = JoinTimer(now.monotonic_ms + delay, left)
        else:
            self.complete_join(result, now)

    def complete_join(self, result: GroupResult, now: Timestamp) -> None:
        """Ends the join phase without the dynamic members that did not join."""
        self.join_timer = None
        for member in list(self.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                logger.info("group %s: %s did not rejoin", self.group_id, member.member_id)
                self.remove(member.member_id)
        if not self.elect_joined_leader() and self.members:
            # Only static members are left, and none has joined: wait until their sessions end.
            logger.warning("group %s: no member rejoined", self.group_id)
            self._arm_join_timer(now)
            return
        self.init_next_generation(now.time_ms)
        self.new_member_added = False
        if self.state is GroupState.EMPTY:
            logger.info("group %s: generation %d is empty", self.group_id, self.generation_id)
            result.records.append(self.metadata_record({}))
            return
        logger.info(
            "group %s: generation %d has %d members",
            self.group_id,
            self.generation_id,
            len(self.members),
        )
        for member in self.members.values():
            self.answer_join(member, self.joined(member), result)
            member.refresh_session(now)
            member.is_new = False
            self.pending_syncs.add(member.member_id)
        self.sync_deadline_ms = now.monotonic_ms + self._join_phase_ms()

    def joined(self, member: Member) -> JoinGroupResponse:
        """The response to a member; the leader gets the metadata of all members."""
        leader = self.is_leader(member.member_id)
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            member_id=member.member_id,
            members=self.described_members() if leader else [],
        )

    def described_members(self) -> list[JoinGroupResponseMember]:
        """The members with their metadata for the chosen protocol, for the leader to assign."""
        assert self.protocol_name is not None, f"{self.group_id} has no protocol in {self.state}"
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.protocols[self.protocol_name],
            )
            for member in self.members.values()
        ]

    def on_pending_sync_expired(
        self, settings: ClassicSettings, result: GroupResult, now: Timestamp
    ) -> None:
        """Members that joined but never sent SyncGroup are removed, and the others"""
        missing = sorted(self.pending_syncs)
        self.sync_deadline_ms = inf
        if not missing or self.state is GroupState.EMPTY:
            return
        for member_id in missing:
            self.remove_member(self.members[member_id], result)
        self.prepare_rebalance(settings, f"no SyncGroup from {missing}", result, now)

    def remove_member(self, member: Member, result: GroupResult) -> None:
        """Removes a member; its waiting requests are answered UNKNOWN_MEMBER_ID."""
        error = ErrorCode.UNKNOWN_MEMBER_ID
        self.answer_join(member, join_error(error), result)
        self.answer_sync(member, SyncGroupResponse(error_code=error), result)
        self.remove(member.member_id)

    def member_removed(
        self, settings: ClassicSettings, reason: str, result: GroupResult, now: Timestamp
    ) -> None:
        """Goes on after members have gone: a settled group rebalances, a joining one may be
        complete."""
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.join_or_rebalance(settings, reason, result, now)
        elif self.state is GroupState.PREPARING_REBALANCE and self.has_all_members_joined():
            self.complete_join(result, now)

    def sync_received(self, member_id: str) -> None:
        """The member has sent its SyncGroup; with the last one the sync timer ends."""
        self.pending_syncs.discard(member_id)
        if not self.pending_syncs:
            self.sync_deadline_ms = inf

    def reset_assignments(self, code: ErrorCode, result: GroupResult, now: Timestamp) -> None:
        """Forgets the assignments; members that wait for theirs get `code` and join again."""
        for member in self.members.values():
            member.assignment = b""
        self.answer_syncs(code, result, now)

    def answer_syncs(self, code: ErrorCode, result: GroupResult, now: Timestamp) -> None:
        """Answers every waiting SyncGroup: with the member's assignment, or with an error."""
        for member in self.members.values():
            answer = SyncGroupResponse(error_code=code)
            if code is ErrorCode.NONE:
                answer = self.synced(member)
            if self.answer_sync(member, answer, result):
                member.refresh_session(now)

    def synced(self, member: Member) -> SyncGroupResponse:
        """The member's assignment in the current generation."""
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def answer_join(self, member: Member, answer: JoinGroupResponse, result: GroupResult) -> None:
        """Answers the member's waiting JoinGroup; nothing happens when none waits."""
        ticket = member.awaiting_join
        if ticket is not None:
            self.set_awaiting_join(member, None)
            result.completed.append((ticket, answer))

    def answer_sync(self, member: Member, answer: SyncGroupResponse, result: GroupResult) -> bool:
        """Answers the member's waiting SyncGroup, and says whether one waited."""
        ticket = member.awaiting_sync
        if ticket is None:
            return False
        member.awaiting_sync = None
        result.completed.append((ticket, answer))
        return True

    def _cancel_sync_timer(self) -> None:
        self.pending_syncs.clear()
        self.sync_deadline_ms = inf

    def _join_phase_ms(self) -> int:
        return max(self.rebalance_timeout_ms(), REBALANCE_TIMEOUT_MS_MIN)

    def _arm_join_timer(self, now: Timestamp) -> None:
        self.join_timer = JoinTimer(now.monotonic_ms + self._join_phase_ms())
