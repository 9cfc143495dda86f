"""The classic protocol, event by event: the response to each request and each timeout."""

from __future__ import annotations

import pytest

from odradek.coordinator.group.classic.classic_member import (
    VALID_PREVIOUS_STATES,
    ClassicSettings,
    GroupState,
)
from odradek.errors import ErrorCode
from odradek.protocol.messages.leave_group_request import MemberIdentity
from tests.coordinator.group.group_machine import Machine

E = ErrorCode


def code_of(machine: Machine, ticket: int) -> ErrorCode:
    return ErrorCode(machine.responses[ticket].error_code)


# -- JoinGroup -------------------------------------------------------------------------------------


def test_new_member_gets_its_id_first_and_joins_with_it():
    machine = Machine()
    first = machine.join()
    assert code_of(machine, first) is E.MEMBER_ID_REQUIRED
    member_id = machine.responses[first].member_id
    second = machine.join(member_id)
    assert second not in machine.responses
    machine.advance(0)
    response = machine.responses[second]
    assert (response.error_code, response.member_id, response.leader) == (0, member_id, member_id)
    assert (response.generation_id, response.protocol_name, response.protocol_type) == (
        1,
        "range",
        "consumer",
    )
    assert [member.member_id for member in response.members] == [member_id]
    assert machine.group.state is GroupState.COMPLETING_REBALANCE


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_versions_join_without_asking_for_an_id(version):
    machine = Machine()
    ticket = machine.join(version=version)
    machine.advance(0)
    assert code_of(machine, ticket) is E.NONE


def test_only_the_leader_gets_the_members():
    machine = Machine()
    (leader,) = machine.stable()
    follower, ticket = machine.join_new()
    rejoin = machine.join(leader)
    assert {m.member_id for m in machine.responses[rejoin].members} == {leader, follower}
    assert machine.responses[ticket].members == []
    assert machine.responses[ticket].leader == leader


def test_initial_rebalance_lasts_the_delay_and_is_extended_by_new_members():
    machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=3_000))
    a, first = machine.join_new(rebalance_ms=8_000)
    machine.advance(2_000)
    b, second = machine.join_new(rebalance_ms=8_000)
    machine.advance(1_000)
    assert not {first, second} & set(machine.responses), "extended, because a member was added"
    machine.advance(3_000)
    assert machine.responses[first].generation_id == machine.responses[second].generation_id == 1
    assert set(machine.group.members) == {a, b}


def test_initial_rebalance_is_never_longer_than_the_rebalance_timeout():
    machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=3_000))
    _, first = machine.join_new(rebalance_ms=7_000)
    for _ in range(6):
        machine.advance(1_000)
        machine.join_new(rebalance_ms=7_000)
    machine.advance(1_000)
    assert code_of(machine, first) is E.NONE


def test_protocol_that_most_prefer_is_chosen_among_the_common_ones():
    machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=10))
    only_common = [
        {"a": b"", "b": b"", "x": b""},
        {"b": b"", "a": b""},
        {"b": b"", "a": b"", "y": b""},
    ]
    tickets = [machine.join_new(protocols=protocols)[1] for protocols in only_common]
    machine.advance(100)
    assert {machine.responses[ticket].protocol_name for ticket in tickets} == {"b"}


@pytest.mark.parametrize(
    ("protocols", "protocol_type"),
    [({"other": b""}, "consumer"), ({"range": b""}, "connect"), ({}, "consumer")],
)
def test_member_without_a_common_protocol_is_refused(protocols, protocol_type):
    machine = Machine()
    machine.stable()
    ticket = machine.join(protocols=protocols, protocol_type=protocol_type)
    assert code_of(machine, ticket) is E.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocols", "protocol_type"), [({}, "consumer"), ({"a": b""}, "")])
def test_empty_group_refuses_a_member_without_protocols_or_type(protocols, protocol_type):
    machine = Machine()
    ticket = machine.join(protocols=protocols, protocol_type=protocol_type)
    assert code_of(machine, ticket) is E.INCONSISTENT_GROUP_PROTOCOL


def test_unknown_member_id_is_refused():
    machine = Machine()
    machine.stable()
    assert code_of(machine, machine.join("nobody")) is E.UNKNOWN_MEMBER_ID


def test_second_member_makes_the_first_rejoin():
    machine = Machine()
    (a,) = machine.stable()
    b, joining = machine.join_new()
    assert machine.group.state is GroupState.PREPARING_REBALANCE
    assert machine.heartbeat(a) is E.REBALANCE_IN_PROGRESS
    assert joining not in machine.responses
    machine.join(a)
    assert machine.responses[joining].generation_id == 2
    machine.settle([a, b])
    assert machine.group.state is GroupState.STABLE


def test_follower_that_rejoins_unchanged_gets_the_current_generation():
    machine = Machine()
    _, follower = machine.stable(2)
    generation = machine.group.generation_id
    response = machine.responses[machine.join(follower)]
    assert (response.error_code, response.generation_id, response.members) == (0, generation, [])
    assert machine.group.state is GroupState.STABLE


def test_leader_that_rejoins_forces_a_rebalance():
    machine = Machine()
    leader, _ = machine.stable(2)
    ticket = machine.join(leader)
    assert ticket not in machine.responses
    assert machine.group.state is GroupState.PREPARING_REBALANCE


def test_follower_with_other_metadata_forces_a_rebalance():
    machine = Machine()
    _, follower = machine.stable(2)
    machine.join(follower, protocols={"range": b"other topics"})
    assert machine.group.state is GroupState.PREPARING_REBALANCE


def test_rejoin_while_the_assignment_is_awaited_gets_the_current_generation():
    machine = Machine()
    member, _ = machine.join_new()
    machine.advance(0)
    response = machine.responses[machine.join(member)]
    assert (response.error_code, response.generation_id) == (0, 1)
    assert [each.member_id for each in response.members] == [member]
    assert machine.group.state is GroupState.COMPLETING_REBALANCE


def test_repeated_join_replaces_the_first_which_gets_an_error():
    machine = Machine()
    (a,) = machine.stable()
    b, first = machine.join_new()
    second = machine.join(b)
    assert code_of(machine, first) is E.REBALANCE_IN_PROGRESS
    machine.join(a)
    assert code_of(machine, second) is E.NONE


def test_members_that_do_not_rejoin_in_time_are_removed():
    machine = Machine()
    a, b = machine.stable(2)
    ticket = machine.join(b, protocols={"range": b"new"}, rebalance_ms=5_000)
    for _ in range(6):
        machine.advance(9_000)
        assert machine.heartbeat(a) is E.REBALANCE_IN_PROGRESS
    machine.advance(6_000)
    assert machine.responses[ticket].generation_id == 3
    assert set(machine.group.members) == {b}
    assert machine.responses[ticket].leader == b, "the leader that did not rejoin is replaced"


def test_pending_member_holds_the_rebalance_until_its_session_ends():
    machine = Machine()
    (a,) = machine.stable()
    asked = machine.join(session_ms=10_000)
    rejoin = machine.join(a)
    assert rejoin not in machine.responses
    machine.advance(10_000)
    assert code_of(machine, rejoin) is E.NONE
    gone = machine.join(machine.responses[asked].member_id)
    assert code_of(machine, gone) is E.UNKNOWN_MEMBER_ID


def test_group_over_its_largest_size_refuses_members():
    machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=0, max_size=2))
    members = machine.stable(2)
    assert code_of(machine, machine.join()) is E.GROUP_MAX_SIZE_REACHED
    assert set(machine.group.members) == set(members)


def test_group_that_is_too_large_after_a_restart_loses_the_last_members_to_join():
    machine = Machine()
    members = machine.stable(3)
    machine.limits = machine.limits._replace(max_size=2)
    restarted = machine.restarted()
    assert restarted.group.state is GroupState.PREPARING_REBALANCE
    tickets = [restarted.join(member) for member in members]
    restarted.advance(60_000)
    codes = [code_of(restarted, ticket) for ticket in tickets]
    assert codes == [E.NONE, E.NONE, E.GROUP_MAX_SIZE_REACHED]


def test_dead_group_reports_that_the_coordinator_is_not_available():
    machine = Machine()
    (member,) = machine.stable()
    machine.perform(machine.group.unload(E.NOT_COORDINATOR, machine.now))
    assert code_of(machine, machine.join(member)) is E.COORDINATOR_NOT_AVAILABLE
    assert code_of(machine, machine.sync(member)) is E.COORDINATOR_NOT_AVAILABLE
    assert machine.heartbeat(member) is E.COORDINATOR_NOT_AVAILABLE


# -- SyncGroup -------------------------------------------------------------------------------------


def test_followers_wait_for_the_leaders_assignment():
    machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=10))
    leader, _ = machine.join_new()
    follower, _ = machine.join_new()
    machine.advance(100)
    waiting = machine.sync(follower)
    assert waiting not in machine.responses
    done = machine.sync(leader, {leader: b"1", follower: b"2"})
    assert machine.responses[done].assignment == b"1"
    assert machine.responses[waiting].assignment == b"2"
    assert machine.group.state is GroupState.STABLE


def test_member_that_the_leader_left_out_gets_an_empty_assignment():
    machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=10))
    leader, _ = machine.join_new()
    follower, _ = machine.join_new()
    machine.advance(100)
    waiting = machine.sync(follower)
    machine.sync(leader, {leader: b"all"})
    assert machine.responses[waiting].assignment == b""


def test_stable_group_repeats_the_assignment():
    machine = Machine()
    (member,) = machine.stable()
    assert machine.responses[machine.sync(member)].assignment == member.encode()


def test_sync_during_the_join_phase_gets_rebalance_in_progress():
    machine = Machine()
    (a,) = machine.stable()
    machine.join_new()
    assert code_of(machine, machine.sync(a)) is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"generation": 99}, E.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance": "nobody"}, E.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "consumer", "protocol_name": "range"}, E.NONE),
    ],
)
def test_sync_is_checked_against_the_group(options, code):
    machine = Machine()
    (member,) = machine.stable()
    assert code_of(machine, machine.sync(member, **options)) is code


def test_new_member_during_the_assignment_makes_all_members_join_again():
    machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=10))
    machine.join_new()
    follower, _ = machine.join_new()
    machine.advance(100)
    waiting = machine.sync(follower)
    machine.join_new()
    assert code_of(machine, waiting) is E.REBALANCE_IN_PROGRESS
    assert machine.group.state is GroupState.PREPARING_REBALANCE


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout():
    machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=10))
    leader, _ = machine.join_new(rebalance_ms=5_000, session_ms=30_000)
    silent, _ = machine.join_new(rebalance_ms=5_000, session_ms=30_000)
    machine.advance(100)
    machine.sync(leader, {leader: b"1"})
    machine.advance(5_000)
    assert set(machine.group.members) == {leader}
    assert machine.heartbeat(leader) is E.REBALANCE_IN_PROGRESS
    assert machine.heartbeat(silent) is E.UNKNOWN_MEMBER_ID


def test_assignment_is_returned_only_when_it_is_stored():
    machine = Machine(hold_stores=True)
    member, _ = machine.join_new()
    machine.advance(0)
    ticket = machine.sync(member, {member: b"1"})
    assert ticket not in machine.responses
    assert machine.group.state is GroupState.COMPLETING_REBALANCE
    machine.release()
    assert machine.responses[ticket].assignment == b"1"
    assert machine.group.state is GroupState.STABLE


def test_assignment_stored_too_late_is_not_returned_to_the_next_generation():
    machine = Machine(hold_stores=True)
    a, _ = machine.join_new()
    machine.advance(0)
    machine.sync(a, {a: b"old"})
    _, joining = machine.join_new()
    rejoin = machine.join(a)
    assert machine.group.state is GroupState.COMPLETING_REBALANCE
    machine.release()
    assert machine.group.state is GroupState.COMPLETING_REBALANCE
    assert code_of(machine, rejoin) is code_of(machine, joining) is E.NONE


def test_assignment_that_cannot_be_stored_is_an_error_and_a_new_rebalance():
    machine = Machine(store_code=E.NOT_COORDINATOR)
    member, _ = machine.join_new()
    machine.advance(0)
    ticket = machine.sync(member, {member: b"1"})
    assert code_of(machine, ticket) is E.NOT_COORDINATOR
    assert machine.group.state is GroupState.PREPARING_REBALANCE
    assert machine.log == []


# -- Heartbeat and sessions ------------------------------------------------------------------------


def test_member_without_heartbeats_is_removed():
    machine = Machine()
    a, b = machine.stable(2, session_ms=10_000)
    for _ in range(5):
        machine.advance(5_000)
        machine.heartbeat(a)
    assert set(machine.group.members) == {a}
    assert machine.heartbeat(b) is E.UNKNOWN_MEMBER_ID
    assert machine.heartbeat(a) is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("member", "generation", "instance", "code"),
    [
        (None, None, None, E.NONE),
        (None, 7, None, E.ILLEGAL_GENERATION),
        ("nobody", None, None, E.UNKNOWN_MEMBER_ID),
        (None, None, "nobody", E.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeat_is_checked_against_the_group(member, generation, instance, code):
    machine = Machine()
    (known,) = machine.stable()
    assert machine.heartbeat(member or known, generation, instance) is code


def test_heartbeat_between_join_and_sync_keeps_the_session():
    machine = Machine()
    member, _ = machine.join_new(session_ms=10_000)
    machine.advance(0)
    machine.advance(9_000)
    assert machine.heartbeat(member) is E.NONE
    machine.advance(9_000)
    assert member in machine.group.members


def test_member_that_waits_for_others_is_not_expired():
    machine = Machine()
    a, b = machine.stable(2, session_ms=10_000, rebalance_ms=60_000)
    ticket = machine.join(a, protocols={"range": b"new"}, session_ms=10_000)
    for _ in range(5):
        machine.advance(9_000)
        machine.heartbeat(b)
    assert a in machine.group.members
    machine.join(b)
    assert code_of(machine, ticket) is E.NONE


def test_new_member_whose_join_waits_is_removed_after_five_minutes():
    machine = Machine()
    a, b = machine.stable(2, rebalance_ms=3_600_000, session_ms=30_000)
    _, ticket = machine.join_new(rebalance_ms=3_600_000)
    for _ in range(16):
        machine.advance(20_000)
        machine.heartbeat(a)
        machine.heartbeat(b)
    assert code_of(machine, ticket) is E.UNKNOWN_MEMBER_ID
    assert set(machine.group.members) == {a, b}


def test_record_of_an_empty_group_is_written_when_the_last_member_leaves():
    machine = Machine()
    (member,) = machine.stable()
    machine.advance(10_000)
    assert machine.group.state is GroupState.EMPTY
    assert machine.group.generation_id == 2
    assert machine.log[-1].value.members == []
    assert code_of(machine, machine.join(member)) is E.UNKNOWN_MEMBER_ID


def test_group_with_a_rebalance_timeout_of_zero_does_not_loop():
    machine = Machine()
    machine.stable(1, rebalance_ms=0, instance=None)
    machine.join_new(rebalance_ms=-1)
    machine.advance(1_000)
    assert machine.group.next_deadline_ms() > machine.now_ms


# -- LeaveGroup ------------------------------------------------------------------------------------


def test_leaving_makes_the_others_rebalance():
    machine = Machine()
    a, b = machine.stable(2)
    assert machine.leave(b) == [E.NONE]
    assert set(machine.group.members) == {a}
    assert machine.heartbeat(a) is E.REBALANCE_IN_PROGRESS


def test_leaving_ends_a_join_phase_that_waited_for_the_leaving_member():
    machine = Machine()
    a, b = machine.stable(2)
    ticket = machine.join(a)
    machine.leave(b)
    assert code_of(machine, ticket) is E.NONE
    assert set(machine.group.members) == {a}


def test_waiting_join_of_a_leaving_member_gets_an_error():
    machine = Machine()
    machine.stable()
    b, ticket = machine.join_new()
    machine.leave(b)
    assert code_of(machine, ticket) is E.UNKNOWN_MEMBER_ID


def test_several_members_leave_with_an_error_for_each():
    machine = Machine()
    a, b, c = machine.stable(3)
    assert machine.leave(a, "nobody", c) == [E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE]
    assert set(machine.group.members) == {b}


def test_pending_member_may_leave():
    machine = Machine()
    (a,) = machine.stable()
    pending = machine.responses[machine.join()].member_id
    ticket = machine.join(a)
    assert machine.leave(pending) == [E.NONE]
    assert code_of(machine, ticket) is E.NONE


# -- static members --------------------------------------------------------------------------------


def static_group(machine: Machine, **options) -> str:
    ticket = machine.join(instance="i", **options)
    machine.advance(0)
    member_id = machine.responses[ticket].member_id
    machine.sync(member_id, {member_id: b"mine"})
    return member_id


def test_static_member_joins_without_an_id_and_returns_without_a_rebalance():
    machine = Machine()
    old = static_group(machine)
    response = machine.responses[machine.join(instance="i")]
    assert response.error_code == 0
    assert response.member_id != old
    assert response.generation_id == 1
    assert response.skip_assignment is True
    assert machine.group.state is GroupState.STABLE
    assert machine.responses[machine.sync(response.member_id)].assignment == b"mine"
    assert machine.restarted().group.members.keys() == {response.member_id}


def test_returning_static_leader_of_old_versions_gets_the_old_leader_id():
    machine = Machine()
    old = static_group(machine)
    response = machine.responses[machine.join(instance="i", version=8)]
    assert (response.leader, response.members, response.skip_assignment) == (old, [], False)


def test_replaced_static_member_is_fenced():
    machine = Machine()
    old = static_group(machine)
    machine.join(instance="i")
    assert machine.heartbeat(old, instance="i") is E.FENCED_INSTANCE_ID
    assert code_of(machine, machine.sync(old, instance="i")) is E.FENCED_INSTANCE_ID
    assert code_of(machine, machine.join(old, instance="i")) is E.FENCED_INSTANCE_ID


def test_waiting_request_of_a_replaced_static_member_is_fenced():
    machine = Machine(limits=ClassicSettings(initial_rebalance_delay_ms=1_000))
    first = machine.join(instance="i")
    machine.join(instance="i")
    assert code_of(machine, first) is E.FENCED_INSTANCE_ID


def test_static_member_whose_new_id_cannot_be_stored_keeps_the_old_one():
    machine = Machine()
    old = static_group(machine)
    machine.store_code = E.NOT_COORDINATOR
    ticket = machine.join(instance="i")
    assert code_of(machine, ticket) is E.NOT_COORDINATOR
    assert set(machine.group.members) == {old}
    assert machine.group.leader_id == old
    assert machine.heartbeat(old, instance="i") is E.NONE


def test_static_member_that_changes_the_protocol_forces_a_rebalance():
    machine = Machine()
    static_group(machine, protocols={"range": b"", "sticky": b""})
    machine.join(instance="i", protocols={"sticky": b"", "range": b""})
    machine.advance(0)
    assert machine.group.generation_id == 2


def test_static_member_is_removed_by_its_instance_id():
    machine = Machine()
    static_group(machine)
    assert machine.leave(MemberIdentity(group_instance_id="nobody")) == [E.UNKNOWN_MEMBER_ID]
    assert machine.leave(MemberIdentity(group_instance_id="i")) == [E.NONE]
    assert machine.group.state is GroupState.EMPTY


def test_static_member_that_misses_a_rebalance_stays_until_its_session_ends():
    machine = Machine()
    static = static_group(machine, session_ms=100_000, rebalance_ms=5_000)
    joiner, ticket = machine.join_new(rebalance_ms=5_000)
    machine.advance(5_000)
    assert code_of(machine, ticket) is E.NONE
    assert set(machine.group.members) == {static, joiner}


# -- restart ---------------------------------------------------------------------------------------


def test_stable_group_goes_on_after_a_restart():
    machine = Machine()
    a, b = machine.stable(2)
    restarted = machine.restarted()
    assert restarted.group.state is GroupState.STABLE
    assert restarted.heartbeat(a) is restarted.heartbeat(b) is E.NONE
    assert restarted.responses[restarted.sync(b)].assignment == b.encode()
    assert restarted.group.leader_id == machine.group.leader_id


def test_members_that_do_not_return_after_a_restart_are_expired():
    machine = Machine()
    machine.stable(2)
    restarted = machine.restarted()
    restarted.advance(10_000)
    assert restarted.group.state is GroupState.EMPTY


def test_unloading_completes_all_waiting_requests():
    machine = Machine()
    machine.stable()
    _, joining = machine.join_new()
    machine.perform(machine.group.unload(E.NOT_COORDINATOR, machine.now))
    assert code_of(machine, joining) is E.NOT_COORDINATOR
    assert machine.group.state is GroupState.DEAD


@pytest.mark.parametrize("state", list(GroupState))
@pytest.mark.parametrize("target", list(GroupState))
def test_only_valid_transitions_are_made(state, target):
    machine = Machine()
    machine.group.state = state
    if state in VALID_PREVIOUS_STATES[target]:
        machine.group.transition_to(target, 1)
        assert (machine.group.state, machine.group.previous_state) == (target, state)
    else:
        with pytest.raises(AssertionError):
            machine.group.transition_to(target, 1)
