"""ConsumerGroupHeartbeat, event by event: epochs, fencing, revoke before assign, static members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek.coordinator.group.consumer.consumer_group import (
    ConsumerGroup,
    ConsumerGroupState,
    TimerKind,
)
from odradek.coordinator.group.consumer.consumer_heartbeat import ConsumerSettings
from odradek.coordinator.group.consumer.consumer_member import ConsumerMember, MemberState
from odradek.errors import ErrorCode, KafkaError
from tests.coordinator.group.consumer.consumer_machine import ConsumerMachine, assignment_in, id_of

E = ErrorCode
ALL = {"t": {0, 1, 2, 3}}


def code_of(act: Any, *arguments: Any, **options: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        act(*arguments, **options)
    assert error.value.message or error.value.code in (E.UNKNOWN_MEMBER_ID,)
    return error.value.code


def two_members() -> tuple[ConsumerMachine, Any]:
    """Return a group in which "a" had all partitions, and "b" has joined and waits for its half."""
    machine = ConsumerMachine()
    machine.join("a")
    return machine, machine.join("b")


# -- invalid requests
# ------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"member_id": " \t"}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"group_id": "\x00\n"}, "GroupId can't be empty."),
        ({"instance_id": " "}, "InstanceId can't be empty."),
        ({"rack_id": "\r "}, "RackId can't be empty."),
        ({"member_id": "", "group_id": "", "epoch": -3}, "MemberId can't be empty."),
        ({"group_id": "", "epoch": -3, "version": 0}, "GroupId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"owned": {"t": {1}}}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        ),
        ({"epoch": -3}, "MemberEpoch is invalid."),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -1, "member_id": ""}, "MemberId can't be empty."),
        ({"epoch": 5, "member_id": "", "version": 0}, "MemberId can't be empty."),
    ],
)
def test_invalid_requests(options: dict[str, Any], message: str) -> None:
    asked = {
        "member_id": "a",
        "epoch": 0,
        "owned": {},
        "rebalance_timeout_ms": 1,
        "subscribed_topic_names": ["t"],
        **options,
    }
    with pytest.raises(KafkaError) as error:
        ConsumerMachine().beat(**asked)
    assert (error.value.code, error.value.message) == (E.INVALID_REQUEST, message)


def test_unknown_assignors_and_invalid_expressions_are_refused() -> None:
    machine = ConsumerMachine()
    assert code_of(machine.join, "a", server_assignor="mine") is E.UNSUPPORTED_ASSIGNOR
    assert code_of(machine.join, "a", subscribed_topic_regex="a(?=b)") is (
        E.INVALID_REGULAR_EXPRESSION
    )
    assert machine.log == []


@pytest.mark.parametrize("name", ["\u3000", "\u00a0", " a "])
def test_characters_that_java_does_not_trim_make_a_name(name: str) -> None:
    machine = ConsumerMachine()
    joined = machine.join(name, instance_id=name, rack_id=name, group_id=name)
    assert joined.member_id == name


def test_member_of_version_0_gets_its_id_from_the_server() -> None:
    assert ConsumerMachine().join("", version=0).member_id == "made-up"


def test_version_0_accepts_a_blank_id() -> None:
    assert ConsumerMachine().join(" ", version=0).member_id == " "


def test_static_member_of_version_0_may_leave_temporarily_without_an_id() -> None:
    machine = ConsumerMachine()
    machine.join("a", instance_id="i", version=0)
    leave = {"owned": None, "instance_id": "i", "version": 0}
    assert code_of(machine.beat, "", -2, **leave) is E.FENCED_INSTANCE_ID


# -- joining and reconciling
# ------------------------------------------------------------------------


def test_first_member_gets_all_partitions_in_its_first_response() -> None:
    machine = ConsumerMachine()
    response = machine.join("a")
    assert (response.member_epoch, assignment_in(response)) == (1, ALL)
    assert response.heartbeat_interval_ms == 5_000
    assert machine.group.state is ConsumerGroupState.STABLE
    assert assignment_in(machine.beat("a", 1)) is None, "nothing has changed"
    full = machine.beat("a", 1, ALL, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"])
    assert assignment_in(full) == ALL


@pytest.mark.parametrize(
    "nothing",
    [
        {"subscribed_topic_names": []},
        {"subscribed_topic_names": None, "subscribed_topic_regex": ""},
    ],
)
def test_member_without_subscriptions_changes_no_assignment(nothing: dict[str, Any]) -> None:
    """The epochs of Apache Kafka 4.1. The epoch of the group changes with the subscriptions, and
    once with its first member."""
    machine = ConsumerMachine()
    machine.join("a")
    response = machine.join("b", **nothing)
    assert (response.member_epoch, assignment_in(response)) == (1, {})
    assert (machine.group.epoch, machine.group.state) == (1, ConsumerGroupState.STABLE)
    assert machine.held("a") == ALL
    assert machine.restarted().group.members.keys() == {"a", "b"}
    subscribed = machine.beat("b", 1, subscribed_topic_names=["t"])
    assert (subscribed.member_epoch, machine.group.epoch) == (2, 2)
    alone = ConsumerMachine()
    assert alone.join("a", **nothing).member_epoch == 1
    alone.beat("a", -1)
    assert alone.join("b", **nothing).member_epoch == 2, "the epoch of the leave"


def test_partitions_are_revoked_before_they_are_assigned() -> None:
    machine, response = two_members()
    assert (response.member_epoch, assignment_in(response)) == (2, {})
    assert machine.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    assert machine.group.state is ConsumerGroupState.RECONCILING
    # "a" has to revoke partitions, and stays in its epoch until it has reported the revocation.
    asked = machine.beat("a", 1)
    kept = assignment_in(asked)
    assert asked.member_epoch == 1
    assert kept is not None
    assert len(kept["t"]) == 2
    assert assignment_in(machine.beat("b", 2)) is None, "they are not free yet"
    assert machine.beat("a", 1, ALL).member_epoch == 1, "it still has them"
    assert machine.beat("a", 1, kept).member_epoch == 2
    freed = assignment_in(machine.beat("b", 2))
    assert freed == {"t": ALL["t"] - kept["t"]}
    assert machine.group.state is ConsumerGroupState.STABLE


def test_revoked_partitions_can_be_assigned_to_the_same_member_again() -> None:
    machine, _ = two_members()
    kept = assignment_in(machine.beat("a", 1))
    machine.beat("b", -1)
    back = machine.beat("a", 1, kept)
    assert (back.member_epoch, assignment_in(back)) == (3, ALL)
    assert machine.group.members["a"].state is MemberState.STABLE
    assert machine.restarted().held("a") == ALL


def test_member_that_does_not_own_the_partitions_to_revoke_moves_to_the_next_epoch() -> None:
    machine, _ = two_members()
    assert machine.beat("a", 1, {}).member_epoch == 2


@pytest.mark.parametrize(
    ("epoch", "owned", "expected"),
    [
        (3, None, E.FENCED_MEMBER_EPOCH),
        (1, {"t": {0, 1, 2, 3}}, E.FENCED_MEMBER_EPOCH),
        (1, None, E.FENCED_MEMBER_EPOCH),
        (1, {}, None),
        (2, None, None),
    ],
)
def test_wrong_member_epochs_are_fenced(epoch: int, owned: Any, expected: ErrorCode | None) -> None:
    machine, _ = two_members()
    machine.beat("a", 1, {})
    if expected is None:
        assert machine.beat("a", epoch, owned).member_epoch == 2
    else:
        assert code_of(machine.beat, "a", epoch, owned) is expected


def test_unknown_members_get_an_error() -> None:
    machine, _ = two_members()
    assert code_of(machine.beat, "c", 1) is E.UNKNOWN_MEMBER_ID
    assert code_of(machine.beat, "c", -1) is E.UNKNOWN_MEMBER_ID


def test_full_group_refuses_new_members() -> None:
    machine = ConsumerMachine(settings=ConsumerSettings(max_size=1))
    machine.join("a")
    assert code_of(machine.join, "b") is E.GROUP_MAX_SIZE_REACHED
    assert machine.join("a").member_epoch == 1


def test_leaving_gives_the_partitions_to_the_others() -> None:
    machine, _ = two_members()
    left = machine.beat("a", -1)
    assert (left.member_id, left.member_epoch, assignment_in(left)) == ("a", -1, None)
    assert machine.group.state is ConsumerGroupState.ASSIGNING
    response = machine.beat("b", 2)
    assert (response.member_epoch, assignment_in(response)) == (3, ALL)
    machine.beat("b", -1)
    assert machine.group.state is ConsumerGroupState.EMPTY


def test_changed_subscription_raises_the_group_epoch() -> None:
    machine = ConsumerMachine()
    machine.set_topics(t=4, u=1)
    machine.join("a")
    response = machine.beat("a", 1, subscribed_topic_names=["u"])
    assert assignment_in(response) == {}, "it has to revoke t first"
    response = machine.beat("a", 1, {})
    assert (response.member_epoch, assignment_in(response)) == (2, {"u": {0}})


@pytest.mark.parametrize(
    ("after", "expected"), [({"t": 6}, {"t": set(range(6))}), ({"t": 4, "u": 9}, None)]
)
def test_new_partitions_are_assigned_at_the_next_heartbeat(after: Any, expected: Any) -> None:
    machine = ConsumerMachine()
    machine.join("a")
    machine.set_topics(**after)
    assert assignment_in(machine.beat("a", 1)) == expected


def test_partitions_of_a_deleted_topic_are_revoked() -> None:
    machine = ConsumerMachine()
    machine.set_topics(t=4, u=2)
    machine.join("a", "t", "u")
    machine.set_topics(t=4)
    assert assignment_in(machine.beat("a", 1)) == {"t": {0, 1, 2, 3}}
    assert machine.beat("a", 1, ALL).member_epoch == 2


def test_topic_is_assigned_when_it_is_created_later() -> None:
    machine = ConsumerMachine()
    assert assignment_in(machine.join("a", "later")) == {}
    machine.set_topics(t=4, later=2)
    assert assignment_in(machine.beat("a", 1)) == {"later": {0, 1}}


# -- regular expressions
# ------------------------------------------------------------------------------


def test_expressions_match_whole_names_and_new_topics() -> None:
    machine = ConsumerMachine()
    machine.set_topics(ab=1, abc=1, xab=1, abcd=1)
    response = machine.join("a", subscribed_topic_names=None, subscribed_topic_regex="ab.?")
    assert assignment_in(response) == {"ab": {0}, "abc": {0}}
    machine.set_topics(ab=1, abc=1, xab=1, abcd=1, abd=1)
    assert assignment_in(machine.beat("a", 1)) == {"ab": {0}, "abc": {0}, "abd": {0}}
    assert set(machine.group.regexes) == {"ab.?"}
    machine.beat("a", 2, subscribed_topic_regex="", subscribed_topic_names=["xab"])
    assert machine.group.regexes == {}


def test_member_that_removes_its_expression_loses_the_partitions() -> None:
    machine = ConsumerMachine()
    for member_id in ("a", "b"):
        machine.join(member_id, subscribed_topic_names=None, subscribed_topic_regex="t")
    machine.beat("a", 1, ALL)
    mine = machine.held("a")
    machine.beat("a", 1, mine)
    machine.beat("b", 2)
    ended = machine.beat("a", 2, mine, subscribed_topic_regex="")
    assert assignment_in(ended) == {}, "they have to be revoked"
    machine.beat("a", 2, {})
    assert set(machine.group.regexes) == {"t"}, "the other member's"
    assert assignment_in(machine.beat("b", 2)) == ALL


def test_subscription_may_have_names_and_an_expression() -> None:
    machine = ConsumerMachine()
    machine.set_topics(t=1, u=1, v=1)
    response = machine.join("a", "t", subscribed_topic_regex="u|w")
    assert assignment_in(response) == {"t": {0}, "u": {0}}


# -- static members
# -----------------------------------------------------------------------------------


def test_static_member_that_returns_gets_its_partitions_again() -> None:
    machine = ConsumerMachine()
    machine.join("a", instance_id="i")
    assert code_of(machine.join, "b", instance_id="i") is E.UNRELEASED_INSTANCE_ID
    away = machine.beat("a", -2, instance_id="i")
    assert away.member_epoch == -2
    assert machine.held("a") == ALL, "no other member gets it in the meantime"
    response = machine.join("b", instance_id="i")
    assert (response.member_epoch, assignment_in(response)) == (1, ALL)
    assert (set(machine.group.members), machine.group.epoch) == ({"b"}, 1), "no rebalance"
    assert code_of(machine.beat, "a", 1, instance_id="i") is E.FENCED_INSTANCE_ID
    assert code_of(machine.beat, "a", 1, instance_id="other") is E.UNKNOWN_MEMBER_ID


def test_static_member_that_leaves_temporarily_has_revoked_its_partitions() -> None:
    machine = ConsumerMachine()
    machine.join("a", instance_id="i")
    machine.join("b")
    kept = assignment_in(machine.beat("a", 1, ALL, instance_id="i"))
    assert kept is not None and machine.held("b") == {}
    machine.beat("a", -2, instance_id="i")
    assert assignment_in(machine.beat("b", 2)) == {"t": ALL["t"] - kept["t"]}
    assert machine.held("a") == kept


def test_assignor_with_the_most_votes_is_used() -> None:
    machine = ConsumerMachine()
    machine.set_topics(t=1, u=1, v=1)
    machine.join("a", "t", "u", "v", server_assignor="range")
    machine.join("b", "t", "u", "v", server_assignor="range")
    machine.join("c", "t", "u", "v", server_assignor="uniform")
    parts = {member_id: len(target) for member_id, target in machine.group.targets.items()}
    assert parts == {"a": 3, "b": 0, "c": 0}, "range: the first of each topic"
    machine.beat("b", 2, server_assignor="uniform")
    machine.beat("a", 1, subscribed_topic_names=["t", "u", "v", "w"])
    assert {len(target) for target in machine.group.targets.values()} == {1}


def test_static_member_that_leaves_permanently_releases_its_instance_id() -> None:
    machine = ConsumerMachine()
    machine.join("a", instance_id="i")
    machine.beat("a", -1, instance_id="i")
    assert machine.group.state is ConsumerGroupState.EMPTY
    assert machine.join("b", instance_id="i").member_epoch == 3


# -- timeouts
# ----------------------------------------------------------------------------------------


def test_heartbeats_keep_the_session_and_revocation_has_a_time_out() -> None:
    machine, _ = two_members()
    assert machine.deadline(TimerKind.SESSION, "a") == 45_000
    machine.now_ms = 1_000
    machine.beat("a", 1)
    assert machine.deadline(TimerKind.SESSION, "a") == 46_000
    assert machine.deadline(TimerKind.REBALANCE, "a") == 61_000
    machine.beat("a", 1, {})
    assert machine.deadline(TimerKind.REBALANCE, "a") is None
    machine.fence("a")
    assert machine.deadline(TimerKind.SESSION, "a") is None


def test_member_in_a_state_of_a_later_kafka_is_fenced_unless_it_has_no_partitions() -> None:
    machine, _ = two_members()
    machine.group.put_member(replace(machine.group.members["a"], state=MemberState.UNKNOWN))
    assert code_of(machine.beat, "a", 1) is E.FENCED_MEMBER_EPOCH
    assert machine.beat("a", 1, {}).member_epoch == 2


def test_partition_is_not_released_by_a_former_member() -> None:
    group = ConsumerGroup("g")
    partitions = {id_of("t"): frozenset({0})}
    former = ConsumerMember("a", member_epoch=1, assigned=partitions)
    group.put_member(former)
    group.put_member(ConsumerMember("b", member_epoch=2, assigned=partitions))
    group.put_member(replace(former, member_epoch=3, assigned={}))
    group.drop_member("a")
    assert group.partition_epochs == {id_of("t"): {0: 2}}
