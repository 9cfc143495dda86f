"""A shard with one classic group for tests, without disk, network or time."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from odradek.coordinator.coordinator_result import (
    CoordinatorRecord,
    CoordinatorResult,
    Timestamp,
)
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import (
    ClassicSettings,
    GroupState,
    JoinEvent,
)
from odradek.coordinator.group.group_client import GroupClient
from odradek.coordinator.group.group_shard import GroupShard
from odradek.errors import ErrorCode
from odradek.protocol import record_codec
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from odradek.protocol.messages.leave_group_request import MemberIdentity
from odradek.protocol.messages.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

RANGE = {"range": b"r"}
CLIENT = GroupClient("client", "/127.0.0.1")
EPOCH_MS = 1_700_000_000_000


def through_bytes(record: CoordinatorRecord) -> tuple[Any, Any]:
    """Return key and value as a restarted broker reads them."""
    key = record_codec.decode_key("group", record_codec.encode_key(record.key))
    if record.value is None:
        return key, None
    data = record_codec.encode_value(record.value, record.value_version)
    return key, record_codec.decode_value(type(record.value), data)


@dataclass
class Machine:
    """Driver of one group. A ticket is a number. `responses` has one response for each ticket."""

    limits: ClassicSettings = field(
        default_factory=lambda: ClassicSettings(initial_rebalance_delay_ms=0)
    )
    now_ms: float = 0.0
    # The error of every append, or NONE.
    store_code: ErrorCode = ErrorCode.NONE
    hold_stores: bool = False

    def __post_init__(self) -> None:
        self.shard = GroupShard(0)
        self.shard.groups["g"] = ClassicGroup("g")
        self.responses: dict[int, Any] = {}
        self.tickets = 0
        self.log: list[CoordinatorRecord] = []
        self.held: list[Any] = []
        self.ids = 0
        # The group as it was before the present event, and the time of the next attempt after a
        # failed one.
        self.before = self.shard.groups["g"]
        self.retry_ms = 0.0
        self.failures = 0

    @property
    def group(self) -> ClassicGroup:
        return self.shard.groups["g"]

    @property
    def now(self) -> Timestamp:
        return Timestamp(self.now_ms, EPOCH_MS + int(self.now_ms))

    # -- events ------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        protocols: dict[str, bytes] | None = None,
        version: int = 9,
        instance: str | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocol_type: str = "consumer",
    ) -> int:
        """Send JoinGroup. Return its ticket."""
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data)
                for name, data in (RANGE if protocols is None else protocols).items()
            ],
        )
        self.ids += 1
        ticket = self._ticket()
        event = JoinEvent(request, CLIENT, version, f"m{self.ids}", ticket)
        self.begin_event()
        self.perform(self.group.join(event, self.limits, self.now))
        return ticket

    def join_new(self, **options: Any) -> tuple[str, int]:
        """Join as current clients do: request an id, then join with it."""
        first = self.responses[self.join(**options)]
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **options)

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        instance: str | None = None,
    ) -> int:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.group.generation_id if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
        )
        ticket = self._ticket()
        self.begin_event()
        self.perform(self.group.sync(request, ticket, self.limits, self.now))
        return ticket

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.group.generation_id if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return self.group.heartbeat(request, self.now)

    def leave(self, *members: str | MemberIdentity) -> list[int]:
        """Send LeaveGroup. Return the codes of the members, or the code of the failed append."""
        identities = [
            MemberIdentity(member_id=each) if isinstance(each, str) else each for each in members
        ]
        self.begin_event()
        result = self.group.leave(identities, self.limits, self.now)
        self.perform(result)
        if result.records and self.store_code is not ErrorCode.NONE:
            return [self.store_code]
        return [member.error_code for member in result.response.members]

    def advance(self, delta_ms: float) -> None:
        """Move time forward, from one deadline to the next."""
        end = self.now_ms + delta_ms
        while (due := max(self.group.next_deadline_ms(), self.retry_ms)) <= end:
            self.now_ms = max(self.now_ms, due)
            self.begin_event()
            self.perform(self.group.expire(self.limits, self.now))
        self.now_ms = end

    # -- result -----------------------------------------------------------------------------------

    def begin_event(self) -> None:
        if self.store_code is not ErrorCode.NONE:
            self.before = copy.deepcopy(self.group)

    def perform(self, result: CoordinatorResult[Any]) -> None:
        self.retry_ms = 0.0
        if result.records and self.store_code is not ErrorCode.NONE:
            self.perform_failed(result)
            return
        self.complete(result)
        if not result.records:
            assert result.after_commit is None
            return
        for record in result.records:
            self.log.append(record)
            self.shard.replay(len(self.log), record.key, record.value)
        if result.after_replay is not None:
            result.after_replay()
        if result.after_commit is None:
            return
        if self.hold_stores:
            self.held.append(result.after_commit)
        else:
            self.perform(result.after_commit(ErrorCode.NONE, self.now))

    def perform_failed(self, result: CoordinatorResult[Any]) -> None:
        """Perform a result whose append fails. Check that the group is as before the event."""
        self.failures += 1
        if result.after_failed_append is None:
            # The leader's SyncGroup: the fields of a record are as before, and a rebalance begins.
            assert result.after_commit is not None
            assert self.group.metadata_record({}) == self.before.metadata_record({})
            self.complete(result)
            self.perform(result.after_commit(self.store_code, self.now))
            assert self.group.metadata_record({}).value.members == (
                self.before.metadata_record({}).value.members
            )
            assert self.group.generation_id == self.before.generation_id
            assert self.group.state is GroupState.PREPARING_REBALANCE
            return
        assert self.group == self.before
        undone = result.after_failed_append(self.store_code, self.now)
        assert not undone.records
        assert undone.after_commit is None
        self.complete(undone)
        self.retry_ms = undone.timers[0].deadline_ms
        assert self.retry_ms > self.now_ms
        completed = {ticket for ticket, _ in undone.completed}
        for member in self.before.members.values():
            if not completed.isdisjoint((member.awaiting_join, member.awaiting_sync)):
                self.before.set_awaiting_join(member, None)
                member.awaiting_sync = None
        for member_id, member in self.group.members.items():
            # An infinite deadline becomes earlier when the session begins again.
            if member.deadline_ms == self.now_ms + member.session_timeout_ms:
                self.before.members[member_id].deadline_ms = member.deadline_ms
        assert self.group == self.before

    def complete(self, result: CoordinatorResult[Any]) -> None:
        for ticket, response in result.completed:
            assert isinstance(ticket, int)
            assert ticket not in self.responses, f"ticket {ticket} is completed twice"
            self.responses[ticket] = response

    def release(self) -> None:
        """Commit the writes that were held back."""
        held, self.held = self.held, []
        for after_commit in held:
            self.perform(after_commit(ErrorCode.NONE, self.now))

    def restarted(self) -> Machine:
        """Return a machine with the state of the log only, as after a crash."""
        other = Machine(limits=self.limits, now_ms=self.now_ms)
        other.shard.groups.clear()
        for offset, record in enumerate(self.log):
            other.shard.replay(offset, *through_bytes(record))
        other.shard.groups.setdefault("g", ClassicGroup("g"))
        other.log = list(self.log)
        other.ids = self.ids
        other.perform(other.group.loaded(other.limits, other.now))
        return other

    def _ticket(self) -> int:
        self.tickets += 1
        return self.tickets

    def waiting(self) -> Iterator[Any]:
        """Iterate over the tickets that the group still has to complete."""
        for member in self.group.members.values():
            for ticket in (member.awaiting_join, member.awaiting_sync):
                if ticket is not None:
                    yield ticket

    # -- shortcuts ---------------------------------------------------------------------------------

    def stable(self, count: int = 1, **options: Any) -> list[str]:
        """Bring `count` members into a stable group. The assignment of each member is its id."""
        members: list[str] = []
        for _ in range(count):
            joined = self.join_new(**options)
            members.append(joined[0])
            for other in members[:-1]:
                self.join(other, **options)
            self.advance(0)
            self.settle(members)
        return members

    def settle(self, members: list[str]) -> None:
        """Send SyncGroup for every member. The leader's request has the assignment."""
        leader = self.group.leader_id
        for member in members:
            plan = {each: each.encode() for each in members} if member == leader else None
            self.sync(member, plan)
