"""Writes of a classic group whose append fails: the group stays as it was, and its timers run.

`Machine.perform_failed` compares the whole group with its copy from before each event. The tests
here add what clients see, and that the write succeeds later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from odradek.coordinator.group.classic.classic_group import EXPIRY_RETRY_MS
from odradek.coordinator.group.classic.classic_member import GroupState
from odradek.errors import ErrorCode
from tests.coordinator.group.classic.test_classic_requests import code_of, static_group
from tests.coordinator.group.group_machine import Machine

E = ErrorCode
FAILURE = E.COORDINATOR_NOT_AVAILABLE
Event = Callable[[], object]


def members_leave(machine: Machine) -> Event:
    return partial(machine.leave, *machine.stable(2))


def sessions_end(machine: Machine) -> Event:
    machine.stable(2)
    return partial(machine.advance, 10_000)


def join_phase_ends(machine: Machine) -> Event:
    """A pending member makes the phase last until its end. The other one does not join again."""
    first, _ = machine.stable(2, session_ms=100_000)
    machine.join(session_ms=200_000)
    machine.leave(first)
    return partial(machine.advance, 60_000)


def sync_group_is_missing(machine: Machine) -> Event:
    machine.join_new(session_ms=100_000)
    machine.advance(0)
    return partial(machine.advance, 60_000)


def last_pending_member_leaves(machine: Machine) -> Event:
    (member,) = machine.stable()
    pending = machine.responses[machine.join()].member_id
    machine.leave(member)
    return partial(machine.leave, pending)


def last_pending_member_is_late(machine: Machine) -> Event:
    (member,) = machine.stable()
    machine.join()
    machine.leave(member)
    return partial(machine.advance, 10_000)


EMPTYING = [
    members_leave,
    sessions_end,
    join_phase_ends,
    sync_group_is_missing,
    last_pending_member_leaves,
    last_pending_member_is_late,
]


@pytest.mark.parametrize("prepare", EMPTYING)
def test_group_that_cannot_be_emptied_stays_as_it_was_until_an_append_succeeds(
    prepare: Callable[[Machine], Event],
) -> None:
    machine = Machine()
    event = prepare(machine)
    generation, state = machine.group.generation_id, machine.group.state
    machine.store_code = FAILURE
    event()
    machine.advance(3 * EXPIRY_RETRY_MS)
    assert machine.failures >= 1
    assert machine.group.state is state
    assert machine.group.generation_id == generation
    machine.store_code = E.NONE
    machine.advance(300_000)
    assert machine.group.state is GroupState.EMPTY
    assert machine.group.generation_id > generation
    assert machine.restarted().group.generation_id == machine.group.generation_id


def test_expired_members_are_removed_again_once_a_second() -> None:
    machine = Machine()
    sessions_end(machine)
    machine.store_code = FAILURE
    machine.advance(10_000)
    assert machine.failures == 1
    machine.advance(10 * EXPIRY_RETRY_MS)
    assert machine.failures == 11


def test_member_whose_session_ended_can_come_back_before_the_next_attempt() -> None:
    machine = Machine()
    (member,) = machine.stable()
    machine.store_code = FAILURE
    machine.advance(10_000)
    assert machine.heartbeat(member) is E.NONE
    machine.store_code = E.NONE
    machine.advance(9_999)
    assert set(machine.group.members) == {member}


def test_leaving_member_that_waits_for_the_join_phase_gets_the_error_and_stays() -> None:
    machine = Machine()
    (first,) = machine.stable()
    second, waiting = machine.join_new()
    machine.store_code = FAILURE
    assert machine.leave(first, second) == [FAILURE]
    assert code_of(machine, waiting) is FAILURE
    assert list(machine.group.members) == [first, second]
    again = machine.join(second)
    machine.store_code = E.NONE
    machine.join(first)
    assert code_of(machine, again) is E.NONE


def test_static_member_that_cannot_be_renamed_is_still_expected_to_send_sync_group() -> None:
    """It joined the generation and never synced. The failed rename must not hide that."""
    machine = Machine()
    leader = static_group(machine)
    late = machine.join(instance="j")
    machine.join(leader, instance="i")
    machine.advance(0)
    late_id = machine.responses[late].member_id
    machine.sync(leader, {}, instance="i")
    assert machine.group.state is GroupState.STABLE
    assert machine.group.pending_syncs == {late_id}
    machine.store_code = FAILURE
    assert code_of(machine, machine.join(instance="j")) is FAILURE
    assert machine.group.pending_syncs == {late_id}


def test_client_of_a_static_member_is_not_fenced_by_a_rename_that_fails() -> None:
    """The first rename waits for its commit. The second one is not appended."""
    machine = Machine(hold_stores=True)
    static_group(machine)
    machine.release()
    first = machine.join(instance="i")
    assert first not in machine.responses
    machine.store_code = FAILURE
    second = machine.join(instance="i")
    assert code_of(machine, first) is code_of(machine, second) is FAILURE


def test_session_of_a_static_member_runs_after_a_late_rename_and_one_that_fails() -> None:
    """The first rename waits for its commit for longer than the session lasts."""
    machine = Machine(hold_stores=True)
    static_group(machine)
    machine.release()
    first = machine.join(instance="i")
    machine.advance(30_000)
    assert first not in machine.responses
    machine.store_code = FAILURE
    second = machine.join(instance="i")
    assert code_of(machine, first) is code_of(machine, second) is FAILURE
    machine.store_code = E.NONE
    machine.advance(9_999)
    assert machine.group.state is GroupState.STABLE
    machine.advance(1)
    assert machine.group.state is GroupState.EMPTY


def test_leave_group_of_one_member_copies_no_member_of_a_large_group() -> None:
    machine = Machine()
    first, *others = machine.stable(3)
    before = dict(machine.group.members)
    machine.leave(first)
    assert all(machine.group.members[each] is before[each] for each in others)


def test_static_member_that_returns_copies_only_itself() -> None:
    machine = Machine()
    first = machine.join(instance="i")
    machine.advance(0)
    second = machine.join(instance="j")
    machine.join(machine.responses[first].member_id, instance="i")
    machine.advance(0)
    ids = [machine.responses[ticket].member_id for ticket in (first, second)]
    for member_id, instance in zip(ids, "ij", strict=True):
        machine.sync(member_id, {}, instance=instance)
    assert machine.group.state is GroupState.STABLE
    before = machine.group.members[ids[0]]
    machine.join(instance="j")
    assert machine.group.members[ids[0]] is before
