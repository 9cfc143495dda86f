"""A group of the classic protocol: its handlers for requests and timers. Pure.

Kafka's rules (``ClassicGroup``, ``GroupMetadataManager``: classicGroupJoin, -Sync, -Heartbeat,
-Leave, prepareRebalance and related methods). A rebalance has two phases: in PreparingRebalance
every member must join again; in CompletingRebalance the leader hands in the assignment and every
member fetches its own with SyncGroup.

Events return a `CoordinatorResult`. JoinGroup and SyncGroup have a ticket, which is returned in
`CoordinatorResult.completed` exactly once. The state that the handlers change is
`GroupMembership`.

A request that is repeated while its first copy waits replaces the first copy, as in Kafka. The
first copy gets REBALANCE_IN_PROGRESS. Kafka never responds to it.
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

# From this version of JoinGroup on, a new member first gets its id, then joins with it (KIP-394).
MEMBER_ID_REQUIRED_FROM = 4
# From this version of JoinGroup on, the response to a returning static leader says that it must
# skip the assignment (KIP-814).
SKIP_ASSIGNMENT_FROM = 9
# Least length of a join phase. Without it, a group whose members have a rebalance timeout of 0
# would set timers in a loop until their sessions end.
REBALANCE_TIMEOUT_MS_MIN = 100
# Pause after which expired members are removed again, when the record of the emptied group could
# not be appended. Each attempt writes a line to the log.
EXPIRY_RETRY_MS = 1_000


@dataclass(slots=True)
class ClassicGroup(GroupMembership):
    """A classic group. Its owner is the shard of its partition; the event loop alone changes it."""

    # -- events ------------------------------------------------------------------------------------

    def join(self, event: JoinEvent, settings: ClassicSettings, now: Timestamp) -> GroupResult:
        """Handle JoinGroup. The ticket is completed now, or when the join phase ends."""
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
        """Handle SyncGroup.

        The leader's request has the assignment. All tickets are completed when the assignment is
        committed.
        """
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
        self.respond_to_sync(member, superseded, result)
        member.awaiting_sync = ticket
        if self.is_leader(request.member_id):
            assignments = {item.member_id: item.assignment for item in request.assignments}
            result.records.append(self.metadata_record(assignments))
            result.after_commit = self._assignment_stored(settings)
        return self._with_timer(result)

    def heartbeat(self, request: HeartbeatRequest, now: Timestamp) -> ErrorCode:
        """Restart the session of a member (Heartbeat).

        REBALANCE_IN_PROGRESS makes the member join again.
        """
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

    def keep_session(self, member_id: str, now_ms: float) -> float:
        """Restart the session of a member that commits. Return its deadline, or infinity."""
        member = self.members.get(member_id)
        if member is None or self.state not in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            return inf
        member.deadline_ms = now_ms + member.session_timeout_ms
        return member.deadline_ms

    def leave(
        self, members: list[MemberIdentity], settings: ClassicSettings, now: Timestamp
    ) -> CoordinatorResult[LeaveGroupResponse]:
        """Remove the named members (LeaveGroup).

        Administrators name static members by instance id alone.

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
        """Handle the deadlines that have passed at `now`.

        These are the deadlines of sessions, of the join phase and of missing SyncGroups. Each
        deadline is checked once. Deadlines that this call sets are for the next call. When the
        record of an emptied group cannot be appended, the call is repeated after `EXPIRY_RETRY_MS`.
        """
        result = CoordinatorResult([], None)
        draft = self.draft(self.members) if self._may_expire_all(now.monotonic_ms) else self
        draft._expire_due(settings, result, now)
        draft._with_timer(result)
        self._install_after_append(draft, result)
        return result

    def _may_expire_all(self, due: float) -> bool:
        """Return whether the passed deadlines may remove all members.

        A wrong True costs only a copy.
        """
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
                logger.info("group %s: pending member %s did not join", self.group_id, member_id)
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
        """Respond with `code` to the waiting requests that the draft completed.

        Their members stay in the group and can send them again.
        """
        result = CoordinatorResult([], None)
        tickets = {ticket for ticket, _ in completed}
        for member in self.members.values():
            if tickets.isdisjoint((member.awaiting_join, member.awaiting_sync)):
                continue
            self.respond_to_join(member, join_error(code, member.member_id), result)
            self.respond_to_sync(member, SyncGroupResponse(error_code=code), result)
            if member.deadline_ms == inf or member.deadline_ms <= now.monotonic_ms:
                member.refresh_session(now)
        retry_ms = max(self.next_deadline_ms(), now.monotonic_ms + EXPIRY_RETRY_MS)
        result.timers.append(CoordinatorTimer(self.group_id, retry_ms))
        return result

    def loaded(self, settings: ClassicSettings, now: Timestamp) -> GroupResult:
        """Restart all sessions after the group was loaded.

        A group above ``group.max.size`` rebalances.
        """
        result = CoordinatorResult([], None)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.update_subscribed_topics()
        for member in self.members.values():
            member.refresh_session(now)
        if len(self.members) > settings.max_size:
            self.prepare_rebalance(settings, "over group.max.size", result, now)
        return self._with_timer(result)

    def downgraded(self, settled: bool, settings: ClassicSettings, now: Timestamp) -> GroupResult:
        """Begin the sessions of a group that was a consumer group.

        Unless it is settled, its members have to join again.
        """
        result = CoordinatorResult([], None)
        for member in self.members.values():
            member.refresh_session(now)
        if not settled:
            self.prepare_rebalance(settings, "downgrade", result, now)
        return self._with_timer(result)

    def unload(self, code: ErrorCode, now: Timestamp) -> GroupResult:
        """Complete the waiting requests with `code`, because the shard is dropped.

        The group becomes Dead.
        """
        result = CoordinatorResult([], None)
        for member in self.members.values():
            self.respond_to_join(member, join_error(code, member.member_id), result)
            self.respond_to_sync(member, SyncGroupResponse(error_code=code), result)
        self.transition_to(GroupState.DEAD, now.time_ms)
        return result

    # -- JoinGroup ---------------------------------------------------------------------------------

    def _accepts(self, member_id: str, settings: ClassicSettings) -> bool:
        """Return whether ``group.max.size`` admits the member.

        During the join phase only waiting members are counted. A group that is too large therefore
        loses the members that join last.
        """
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
        """Handle a JoinGroup without a member id.

        From version 4 on a dynamic member first gets an id, and joins again with it.
        """
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
        """Handle a JoinGroup with a member id: a pending member joins, or a member joins again."""
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
            # Nothing changed. The client may have missed the response for this generation.
            result.completed.append((event.ticket, self.joined(member)))

    def _must_rebalance(self, member: Member, protocols: dict[str, bytes]) -> bool:
        """Return whether a member that joins again needs a rebalance.

        It does during the join phase, with other metadata, or as the leader of a stable group.
        """
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
        """Add a new member.

        It cannot send heartbeats while its JoinGroup waits, so its session does not run. It is
        removed after `new_member_join_timeout_ms`, so that requests of clients that have
        disconnected do not accumulate.
        """
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
        """Set the member's protocols, timeouts and ticket from a new JoinGroup."""
        superseded = join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self.respond_to_join(member, superseded, result)
        member.protocols = event.protocols()
        member.rebalance_timeout_ms = event.request.rebalance_timeout_ms
        member.session_timeout_ms = event.request.session_timeout_ms
        self.set_awaiting_join(member, event.ticket)

    def _replace_static_member(
        self, event: JoinEvent, settings: ClassicSettings, result: GroupResult, now: Timestamp
    ) -> None:
        """Handle a static member that returns without its member id.

        It replaces the member of its instance id. A stable group whose protocol stays the same does
        not rebalance (KIP-345).
        """
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
            # The leader may assign partitions to the old id, and no member would fetch them.
            self.prepare_rebalance(
                settings, f"static member {member.member_id} has returned", result, now
            )
        else:
            self.complete_join_if_ready(result, now)

    def _take_over(self, old: Member, new_id: str, result: GroupResult) -> Member:
        """Replace a static member by a copy with a new id.

        Requests that wait under the old id get FENCED_INSTANCE_ID.
        """
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.respond_to_join(old, join_error(fenced, old.member_id), result)
        self.respond_to_sync(old, SyncGroupResponse(error_code=fenced), result)
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
        """Return the continuation of the write that renames a static member.

        It runs when the record is committed, or is not committed in time. In both cases the member
        keeps its new id, because the record stays in the log. Its session begins again with the
        response.
        """

        def stored(code: ErrorCode, now: Timestamp) -> GroupResult:
            result = CoordinatorResult([], None)
            member = self.members.get(member_id)
            if member is None or member.awaiting_join is None:
                return self._with_timer(result)
            if code is ErrorCode.NONE:
                response = self._returned(member, old_leader, version)
            else:
                response = join_error(code)
            # The deadline may have become infinite while the request waited.
            member.refresh_session(now)
            self.respond_to_join(member, response, result)
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
        """Handle the failed append of a static member's new id.

        The member keeps its old id, and its session begins again, as in Kafka.
        """
        result = self._draft_failed(completed, code, now)
        self.members[old_id].refresh_session(now)
        result.completed.append(event.refused(code, NO_MEMBER_ID))
        return self._with_timer(result)

    def _returned(self, member: Member, old_leader: str | None, version: int) -> JoinGroupResponse:
        """Return the response to a static member that has returned to a stable group.

        A returning leader must not assign again. Before version 9 the response names the old id of
        the leader, so the client does not see itself as the leader. From version 9 on it has a flag
        to skip the assignment.
        """
        response = self.joined(member)
        if version < SKIP_ASSIGNMENT_FROM:
            response.members = []
            response.leader = old_leader or ""
        else:
            response.skip_assignment = self.is_leader(member.member_id)
        return response

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
        """Return the continuation for the end of the leader's write.

        The replay has put the assignment into the members. The continuation does nothing when the
        group has begun another rebalance in the meantime. When the write failed, the waiting
        SyncGroup requests get the error and a rebalance begins, as in Kafka.
        """
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
                self.respond_to_syncs(code, result, now)
            else:
                self.reset_assignments(code, result, now)
                reason = f"{code.name} while storing the assignment"
                self.join_or_rebalance(settings, reason, result, now)
            return self._with_timer(result)

        return stored

    def _leave_one(self, identity: MemberIdentity, result: GroupResult) -> ErrorCode:
        """Remove one member or pending member. Return the code for it."""
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
        """Remove a member whose session has ended.

        While its own request waits, the session does not run.
        """
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
        """Begin a rebalance if the state allows it.

        Otherwise end the join phase if all members have joined.
        """
        if self.can_rebalance():
            self.prepare_rebalance(settings, reason, result, now)
        else:
            self.complete_join_if_ready(result, now)

    def prepare_rebalance(
        self, settings: ClassicSettings, reason: str, result: GroupResult, now: Timestamp
    ) -> None:
        """Begin the join phase. An empty group waits for more members for the initial delay."""
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
        """End the join phase if all members have joined.

        Only its timer ends an initial rebalance.
        """
        if (
            self.state is GroupState.PREPARING_REBALANCE
            and self.previous_state is not GroupState.EMPTY
            and self.has_all_members_joined()
        ):
            self.complete_join(result, now)

    def on_join_timer(self, settings: ClassicSettings, result: GroupResult, now: Timestamp) -> None:
        """End the join phase at its deadline.

        Extend an initial rebalance if new members have joined.
        """
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
        """End the join phase. Remove the dynamic members that did not join."""
        self.join_timer = None
        for member in list(self.members.values()):
            if member.awaiting_join is None and member.group_instance_id is None:
                logger.info("group %s: %s did not rejoin", self.group_id, member.member_id)
                self.remove(member.member_id)
        if not self.elect_joined_leader() and self.members:
            # Only static members remain, and none has joined. Wait until their sessions end.
            logger.warning(
                "group %s: no member rejoined. The rebalance waits for its static members",
                self.group_id,
            )
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
            self.respond_to_join(member, self.joined(member), result)
            member.refresh_session(now)
            member.is_new = False
            self.pending_syncs.add(member.member_id)
        self.sync_deadline_ms = now.monotonic_ms + self._join_phase_ms()

    def joined(self, member: Member) -> JoinGroupResponse:
        """Return the JoinGroup response to a member.

        The leader gets the metadata of all members.
        """
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
        """Return the members with their metadata for the selected protocol, for the leader."""
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
        """Remove the members that joined and did not send SyncGroup in time.

        The others have to join again.
        """
        missing = sorted(self.pending_syncs)
        self.sync_deadline_ms = inf
        if not missing or self.state is GroupState.EMPTY:
            return
        for member_id in missing:
            self.remove_member(self.members[member_id], result)
        self.prepare_rebalance(settings, f"no SyncGroup from {missing}", result, now)

    def remove_member(self, member: Member, result: GroupResult) -> None:
        """Remove a member. Its waiting requests get UNKNOWN_MEMBER_ID."""
        error = ErrorCode.UNKNOWN_MEMBER_ID
        self.respond_to_join(member, join_error(error), result)
        self.respond_to_sync(member, SyncGroupResponse(error_code=error), result)
        self.remove(member.member_id)

    def member_removed(
        self, settings: ClassicSettings, reason: str, result: GroupResult, now: Timestamp
    ) -> None:
        """Handle the removal of a member.

        Begin a rebalance, or end the join phase if all remaining members have joined.
        """
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.join_or_rebalance(settings, reason, result, now)
        elif self.state is GroupState.PREPARING_REBALANCE and self.has_all_members_joined():
            self.complete_join(result, now)

    def sync_received(self, member_id: str) -> None:
        """Note the SyncGroup of a member. The last one ends the sync timer."""
        self.pending_syncs.discard(member_id)
        if not self.pending_syncs:
            self.sync_deadline_ms = inf

    def reset_assignments(self, code: ErrorCode, result: GroupResult, now: Timestamp) -> None:
        """Clear the assignments.

        Waiting SyncGroup requests get `code`, and their members join again.
        """
        for member in self.members.values():
            member.assignment = b""
        self.respond_to_syncs(code, result, now)

    def respond_to_syncs(self, code: ErrorCode, result: GroupResult, now: Timestamp) -> None:
        """Complete every waiting SyncGroup with the member's assignment, or with an error."""
        for member in self.members.values():
            response = SyncGroupResponse(error_code=code)
            if code is ErrorCode.NONE:
                response = self.synced(member)
            if self.respond_to_sync(member, response, result):
                member.refresh_session(now)

    def synced(self, member: Member) -> SyncGroupResponse:
        """Return the SyncGroup response with the member's assignment."""
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def respond_to_join(
        self, member: Member, response: JoinGroupResponse, result: GroupResult
    ) -> None:
        """Complete the member's waiting JoinGroup, if there is one."""
        ticket = member.awaiting_join
        if ticket is not None:
            self.set_awaiting_join(member, None)
            result.completed.append((ticket, response))

    def respond_to_sync(
        self, member: Member, response: SyncGroupResponse, result: GroupResult
    ) -> bool:
        """Complete the member's waiting SyncGroup. Return whether there was one."""
        ticket = member.awaiting_sync
        if ticket is None:
            return False
        member.awaiting_sync = None
        result.completed.append((ticket, response))
        return True

    def _cancel_sync_timer(self) -> None:
        self.pending_syncs.clear()
        self.sync_deadline_ms = inf

    def _join_phase_ms(self) -> int:
        return max(self.rebalance_timeout_ms(), REBALANCE_TIMEOUT_MS_MIN)

    def _arm_join_timer(self, now: Timestamp) -> None:
        self.join_timer = JoinTimer(now.monotonic_ms + self._join_phase_ms())
