"""Invariants of classic groups under random clients, timeouts and failing disks."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from odradek.coordinator.group.classic.classic_member import ClassicSettings, GroupState
from odradek.errors import ErrorCode
from odradek.protocol.messages.leave_group_request import MemberIdentity
from tests.coordinator.group.group_machine import Machine

SESSION_MS = 10_000


@dataclass
class ClientModel:
    """A consumer that acts by the last response that it has received."""

    instance: str | None = None
    member_id: str = ""
    join_ticket: int | None = None
    sync_ticket: int | None = None
    generation: int = -1
    assignment: bytes | None = None


class GroupOfClients(RuleBasedStateMachine):
    clients = Bundle("clients")

    @initialize(delay=st.sampled_from([0, 3_000]), max_size=st.sampled_from([2, 100]))
    def begin(self, delay, max_size):
        limits = ClassicSettings(initial_rebalance_delay_ms=delay, max_size=max_size)
        self.machine = Machine(limits=limits)
        self.known: list[ClientModel] = []
        self.generation = 0

    # -- clients -----------------------------------------------------------------------------------

    @rule(target=clients, instance=st.sampled_from([None, None, None, "i", "j"]))
    def start_client(self, instance):
        if instance in {client.instance for client in self.known}:
            instance = None
        client = ClientModel(instance=instance)
        self.known.append(client)
        self._join(client)
        return client

    @rule(client=clients, metadata=st.sampled_from([b"r", b"other"]))
    def join_again(self, client, metadata):
        self._join(client, metadata)

    @rule(client=clients)
    def act(self, client):
        """Take the next step of a well-behaved client."""
        response = self.machine.responses.get(client.join_ticket)
        if response is None:
            return
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
            self._join(client)
        elif response.error_code == ErrorCode.NONE:
            client.member_id = response.member_id
            client.generation = response.generation_id
            if client.sync_ticket is None:
                self._sync(client, response)
            else:
                self._after_sync(client)
        else:
            if response.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                client.member_id = ""
            self._join(client)

    @rule(client=clients)
    def leave(self, client):
        identity = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance)
        if client.member_id or client.instance:
            self.machine.leave(identity)

    @rule(client=clients)
    def restart_client(self, client):
        client.member_id = ""
        self._join(client)

    def _join(self, client: ClientModel, metadata: bytes = b"r") -> None:
        client.sync_ticket = None
        client.join_ticket = self.machine.join(
            client.member_id,
            instance=client.instance,
            protocols={"range": metadata},
            session_ms=SESSION_MS,
        )

    def _sync(self, client: ClientModel, response) -> None:
        plan = {each.member_id: each.member_id.encode() for each in response.members}
        client.sync_ticket = self.machine.sync(
            client.member_id, plan, generation=client.generation, instance=client.instance
        )

    def _after_sync(self, client: ClientModel) -> None:
        response = self.machine.responses.get(client.sync_ticket)
        if response is None:
            return
        if response.error_code != ErrorCode.NONE:
            self._join(client)
            return
        client.assignment = response.assignment
        code = self.machine.heartbeat(client.member_id, client.generation, client.instance)
        if code is not ErrorCode.NONE:
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id = ""
            self._join(client)

    @rule()
    def clients_form_a_stable_group(self):
        """With a working disk, well-behaved clients form a stable group of all clients."""
        self.disk_fails(ErrorCode.NONE)
        self.disk_is_slow(False)
        self.machine.release()
        for _ in range(30):
            for client in self.known:
                self.act(client)
            self.machine.advance(3_000)
        group = self.machine.group
        if self.known and len(self.known) <= self.machine.limits.max_size:
            assert group.state is GroupState.STABLE
            assert set(group.members) == {client.member_id for client in self.known}
            for client in self.known:
                assert client.generation == group.generation_id
                assert client.assignment == group.members[client.member_id].assignment

    # -- time and disk -----------------------------------------------------------------------------

    @rule(delta_ms=st.sampled_from([0, 100, 3_000, 9_999, 60_000, 300_000]))
    def time_passes(self, delta_ms):
        self.machine.advance(delta_ms)

    @rule(hold=st.booleans())
    def disk_is_slow(self, hold):
        self.machine.hold_stores = hold

    @rule()
    def disk_completes_writes(self):
        self.machine.release()

    @rule(code=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]))
    def disk_fails(self, code):
        self.machine.store_code = code

    # -- events whose append fails: `Machine.perform_failed` compares the group before and after ---

    @rule(client=clients)
    def append_fails_for_the_next_step(self, client):
        with self._failing_disk():
            self.act(client)

    @rule(client=clients)
    def append_fails_for_a_restarted_client(self, client):
        with self._failing_disk():
            self.restart_client(client)

    @rule(clients=st.lists(clients, min_size=1, max_size=4))
    def append_fails_for_leaving_clients(self, clients):
        known = {client.member_id: client for client in clients if client.member_id}
        with self._failing_disk():
            self.machine.leave(*known)

    @rule(delta_ms=st.sampled_from([100, 9_999, 60_000]))
    def append_fails_for_deadlines(self, delta_ms):
        with self._failing_disk():
            self.machine.advance(delta_ms)

    @contextmanager
    def _failing_disk(self):
        before, self.machine.store_code = self.machine.store_code, ErrorCode.NOT_COORDINATOR
        yield
        self.machine.store_code = before

    # -- invariants --------------------------------------------------------------------------------

    @invariant()
    def no_request_is_lost(self):
        machine = self.machine
        unanswered = set(range(1, machine.tickets + 1)) - set(machine.responses)
        assert unanswered == set(machine.waiting())

    @invariant()
    def counts_and_names_agree(self):
        group = self.machine.group
        waiting = [m for m in group.members.values() if m.awaiting_join is not None]
        assert group.awaiting_join_count == len(waiting)
        assert (group.leader_id in group.members) == bool(group.members)
        assert group.static_members == {
            m.group_instance_id: m.member_id
            for m in group.members.values()
            if m.group_instance_id is not None
        }
        assert not set(group.pending_joins) & set(group.members)
        assert group.pending_syncs <= set(group.members)

    @invariant()
    def generations_only_rise(self):
        assert self.machine.group.generation_id >= self.generation
        self.generation = self.machine.group.generation_id

    @invariant()
    def state_fits_the_members(self):
        group = self.machine.group
        if group.state is GroupState.EMPTY:
            assert not group.members
        elif group.state is not GroupState.PREPARING_REBALANCE:
            assert group.members
            assert all(group.protocol_name in m.protocols for m in group.members.values())
        if group.state is GroupState.STABLE:
            assert not any(m.awaiting_sync for m in group.members.values())
        if group.state is GroupState.PREPARING_REBALANCE:
            assert group.join_timer is not None

    @invariant()
    def log_knows_what_a_stable_group_knows(self):
        machine = self.machine
        if machine.group.state is not GroupState.STABLE or machine.held:
            return
        live, stored = machine.group, machine.restarted().group
        if set(stored.members) != set(live.members):
            # Only a rebalance adds or removes members.
            raise AssertionError((stored, live))
        assert stored.generation_id == live.generation_id
        assert stored.leader_id == live.leader_id
        for member_id, member in live.members.items():
            assert stored.members[member_id].assignment == member.assignment

    def teardown(self):
        """After all clients have stopped, every request gets a response and the group is empty."""
        if not hasattr(self, "machine"):
            return
        self.machine.hold_stores = False
        self.machine.store_code = ErrorCode.NONE
        self.machine.release()
        self.machine.advance(3_600_000)
        assert not list(self.machine.waiting())
        assert self.machine.group.state is GroupState.EMPTY
        assert self.machine.group.next_deadline_ms() == float("inf")


GroupOfClients.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestGroupOfClients = GroupOfClients.TestCase
