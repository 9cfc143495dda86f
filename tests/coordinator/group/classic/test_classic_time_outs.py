"""Details of the classic protocol: timeouts that members change, static members that return at an
unusual time, and the limits of a group while it rebalances."""

from __future__ import annotations

import pytest

from odradek.coordinator.group.classic.classic_member import ClassicSettings, GroupState
from odradek.errors import ErrorCode
from tests.coordinator.group.classic.test_classic_requests import code_of, static_group
from tests.coordinator.group.group_machine import Machine

E = ErrorCode
INT32_MAX = 2_147_483_647


def test_member_that_joins_again_has_the_session_time_out_of_its_last_request():
    machine = Machine()
    (member,) = machine.stable(session_ms=10_000)
    machine.join(member, session_ms=30_000)
    machine.settle([member])
    machine.advance(29_999)
    assert set(machine.group.members) == {member}
    machine.advance(1)
    assert machine.group.members == {}


def test_member_that_joins_again_has_the_rebalance_time_out_of_its_last_request():
    machine = Machine()
    (member,) = machine.stable(session_ms=100_000, rebalance_ms=60_000)
    machine.join(member, session_ms=100_000, rebalance_ms=20_000)
    machine.settle([member])
    _, joiner = machine.join_new(rebalance_ms=1_000)
    machine.advance(19_999)
    assert joiner not in machine.responses
    machine.advance(1)
    assert code_of(machine, joiner) is E.NONE
    assert member not in machine.group.members


def test_session_of_a_static_member_that_returns_begins_again():
    machine = Machine()
    static_group(machine)
    machine.advance(9_000)
    back = machine.responses[machine.join(instance="i")].member_id
    machine.advance(9_999)
    assert set(machine.group.members) == {back}
    machine.advance(1)
    assert machine.group.members == {}


@pytest.mark.parametrize("commit_ms", [0, 9_999, 10_000, 30_000])
def test_session_of_a_renamed_static_member_begins_when_its_new_id_is_committed(commit_ms: int):
    """Its session does not run while its request waits for the commit."""
    machine = Machine()
    static_group(machine)
    machine.hold_stores = True
    ticket = machine.join(instance="i")
    machine.advance(commit_ms)
    assert ticket not in machine.responses
    machine.hold_stores = False
    machine.release()
    back = machine.responses[ticket].member_id
    machine.advance(9_999)
    assert set(machine.group.members) == {back}
    machine.advance(1)
    assert machine.group.members == {}


def test_late_commit_of_a_rename_leaves_the_session_that_a_rebalance_has_begun():
    machine = Machine()
    static_group(machine)
    machine.hold_stores = True
    ticket = machine.join(instance="i")
    other, _ = machine.join_new(session_ms=100_000)
    back = machine.responses[ticket].member_id
    machine.advance(5_000)
    machine.release()
    machine.advance(4_999)
    assert set(machine.group.members) == {back, other}
    machine.advance(1)
    assert set(machine.group.members) == {other}


def test_static_member_that_returns_during_its_first_join_waits_for_the_whole_phase():
    """Its session does not run while it waits: it cannot send heartbeats yet."""
    machine = Machine()
    machine.stable(session_ms=200_000, rebalance_ms=60_000)
    machine.join(instance="i", session_ms=10_000)
    back = machine.join(instance="i", session_ms=10_000)
    machine.advance(59_999)
    assert back not in machine.responses
    machine.advance(1)
    assert code_of(machine, back) is E.NONE


def test_static_member_that_returns_during_the_assignment_makes_all_members_join_again():
    """The leader may assign partitions to the old id, and no member would fetch them."""
    machine = Machine()
    old = static_group(machine)
    other, waiting = machine.join_new()
    rejoined = machine.join(old, instance="i")
    assert code_of(machine, rejoined) is code_of(machine, waiting) is E.NONE
    assert machine.group.state is GroupState.COMPLETING_REBALANCE
    syncing = machine.sync(other)
    back = machine.join(instance="i")
    assert code_of(machine, syncing) is E.REBALANCE_IN_PROGRESS
    assert machine.group.state is GroupState.PREPARING_REBALANCE
    again = machine.join(other)
    assert code_of(machine, back) is code_of(machine, again) is E.NONE
    assert machine.group.generation_id == 3


def test_sync_timer_does_not_wait_for_a_replaced_static_member():
    machine = Machine()
    (leader,) = machine.stable(session_ms=200_000)
    static = machine.join(instance="i", session_ms=200_000)
    machine.join(leader, session_ms=200_000)
    former = machine.responses[static].member_id
    machine.sync(leader, {leader: b"1", former: b"2"})
    assert machine.group.state is GroupState.STABLE, "the static member has no assignment yet"
    back = machine.responses[machine.join(instance="i", session_ms=200_000)].member_id
    machine.advance(60_000)
    assert machine.group.state is GroupState.STABLE
    assert set(machine.group.members) == {leader, back}
    assert machine.responses[machine.sync(back)].assignment == b"2"


def test_id_of_a_pending_dynamic_member_is_refused_for_a_static_one():
    machine = Machine()
    member_id = machine.responses[machine.join()].member_id
    assert code_of(machine, machine.join(member_id, instance="i")) is E.UNKNOWN_MEMBER_ID
    assert machine.group.members == {}


def test_waiting_member_of_a_full_group_may_repeat_its_join():
    machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=0))
    first, second, third = machine.stable(3)
    machine.limits = machine.limits._replace(max_size=2)
    machine.join(first, protocols={"range": b"other"})
    machine.join(second)
    again = machine.join(first, protocols={"range": b"other"})
    assert again not in machine.responses, "it is counted already"
    assert code_of(machine, machine.join(third)) is E.GROUP_MAX_SIZE_REACHED
    machine.advance(60_000)
    assert code_of(machine, again) is E.NONE


@pytest.mark.parametrize(("before", "after"), [(INT32_MAX - 1, INT32_MAX), (INT32_MAX, 1)])
def test_generation_after_the_largest_one_is_one(before: int, after: int):
    machine = Machine()
    (member,) = machine.stable()
    machine.group.generation_id = before
    machine.join(member)
    assert machine.group.generation_id == after
