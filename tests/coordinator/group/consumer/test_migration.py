"""Members of the classic protocol in consumer groups, and groups that change their protocol."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import GroupState, Member
from odradek.coordinator.group.consumer import classic_members
from odradek.coordinator.group.consumer.consumer_group import TimerKind
from odradek.coordinator.group.consumer.consumer_heartbeat import ConsumerSettings
from odradek.coordinator.group.consumer.migration import (
    held_bytes,
    may_downgrade,
    read_held,
    read_subscription,
    to_classic,
    to_consumer,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol import codec
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from odradek.protocol.messages.leave_group_request import MemberIdentity
from odradek.protocol.messages.sync_group_request import SyncGroupRequest
from tests.coordinator.group.consumer.consumer_machine import (
    ConsumerMachine,
    assignment_in,
    id_of,
    topics,
)

E = ErrorCode
HALF = 2


def subscription(*names: str, owned: set[int] | None = None, version: int = 1) -> bytes:
    held = [TopicPartition("t", sorted(owned))] if owned else []
    message = ConsumerProtocolSubscription(topics=list(names or ("t",)), owned_partitions=held)
    return struct.pack(">h", version) + codec.encode(message, version)


class Mixed(ConsumerMachine):
    """A group in which some members use the classic protocol."""

    def classic_join(
        self, member_id: str = "c", owned: set[int] | None = None, **options: Any
    ) -> Any:
        metadata = options.pop("metadata", subscription(owned=owned))
        names = options.pop("protocols", ["range"])
        request = JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            protocol_type=options.pop("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name, metadata) for name in names],
            **options,
        )
        joined = classic_members.join(self.group, request, self.context(9))
        self.apply(joined)
        return joined

    def classic_sync(self, generation: int, member_id: str = "c", **options: Any) -> set[int]:
        request = SyncGroupRequest("g", generation, member_id, **options)
        response, timers = classic_members.sync(self.group, request, self.context())
        assert [timer.kind for timer in timers] == [TimerKind.SYNC, TimerKind.SESSION]
        return set(read_held(response.assignment, self.image).get(id_of("t"), ()))

    def classic_beat(self, generation: int, member_id: str = "c") -> ErrorCode:
        request = HeartbeatRequest("g", generation, member_id)
        code, timers = classic_members.heartbeat(self.group, request, self.context())
        for kind, member, deadline in timers:
            assert deadline is not None
            self.group.deadlines[kind, member] = deadline
        return code


def code_of(act: Any, *arguments: Any, **options: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        act(*arguments, **options)
    return error.value.code


def test_classic_member_is_reconciled_by_joining_again() -> None:
    machine = Mixed()
    machine.join("a")
    joined = machine.classic_join()
    generation = joined.response.generation_id
    assert (generation, joined.response.protocol_name, joined.response.leader) == (2, "range", "")
    assert machine.classic_sync(generation) == set()
    assert machine.classic_beat(generation) is E.NONE, "nothing is free for it yet"
    kept = assignment_in(machine.beat("a", 1))
    assert kept is not None
    machine.beat("a", 1, kept)
    assert machine.classic_beat(generation) is E.REBALANCE_IN_PROGRESS
    again = machine.classic_join()
    assert machine.classic_sync(again.response.generation_id) == {0, 1, 2, 3} - kept["t"]


def test_classic_member_revokes_a_partition_before_another_gets_it() -> None:
    machine = Mixed()
    generation = machine.classic_join().response.generation_id
    assert machine.classic_sync(generation) == {0, 1, 2, 3}
    machine.join("a")
    assert machine.classic_beat(generation) is E.REBALANCE_IN_PROGRESS
    kept = machine.classic_join(owned={0, 1, 2, 3}).response.generation_id
    assert kept == generation, "it still owns the partitions to revoke"
    held = machine.classic_sync(kept)
    assert len(held) == HALF
    assert machine.classic_beat(kept) is E.REBALANCE_IN_PROGRESS
    assert machine.classic_join(owned=held).response.generation_id == 2
    assert assignment_in(machine.beat("a", 2)) == {"t": {0, 1, 2, 3} - held}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ["other"]}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"metadata": b"?"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "i"}, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_joins_that_are_refused(options: dict[str, Any], expected: ErrorCode) -> None:
    machine = Mixed()
    machine.classic_join()
    assert code_of(machine.classic_join, "d", **options) is expected


def test_new_classic_member_gets_its_id_first_and_a_full_group_refuses_it() -> None:
    machine = Mixed(settings=ConsumerSettings(max_size=1))
    response = machine.classic_join("").response
    assert (response.error_code, response.member_id) == (E.MEMBER_ID_REQUIRED, "made-up")
    machine.classic_join()
    assert code_of(machine.classic_join, "d") is E.GROUP_MAX_SIZE_REACHED


def test_classic_requests_are_fenced() -> None:
    machine = Mixed()
    machine.join("a")
    generation = machine.classic_join().response.generation_id
    assert code_of(machine.classic_sync, generation, "a") is E.UNKNOWN_MEMBER_ID
    assert code_of(machine.classic_sync, generation, "nobody") is E.UNKNOWN_MEMBER_ID
    assert code_of(machine.classic_sync, generation - 1) is E.ILLEGAL_GENERATION
    assert code_of(machine.classic_sync, generation, protocol_name="x") is (
        E.INCONSISTENT_GROUP_PROTOCOL
    )


def test_classic_member_that_must_join_again_after_sync_has_its_rebalance_time_out() -> None:
    machine = Mixed()
    machine.join("a")
    generation = machine.classic_join().response.generation_id
    machine.set_topics(t=9)
    machine.beat("a", 1)
    machine.now_ms = 1_000
    request = SyncGroupRequest("g", generation, "c")
    response, timers = classic_members.sync(machine.group, request, machine.context())
    assert (response.error_code, response.assignment) == (E.REBALANCE_IN_PROGRESS, b"")
    assert timers == [(TimerKind.JOIN, "c", (31_000, -1))]
    machine.classic_beat(generation)
    machine.now_ms = 2_000
    assert classic_members.sync(machine.group, request, machine.context())[1] == [], "not put off"


def test_classic_member_has_its_own_time_outs() -> None:
    machine = Mixed()
    generation = machine.classic_join().response.generation_id
    assert machine.deadline(TimerKind.SESSION, "c") == 10_000
    assert machine.deadline(TimerKind.SYNC, "c") == 30_000
    machine.join("a")
    machine.now_ms = 1_000
    machine.classic_beat(generation)
    assert machine.deadline(TimerKind.SESSION, "c") == 11_000
    assert machine.deadline(TimerKind.JOIN, "c") == 31_000
    machine.now_ms = 2_000
    machine.classic_beat(generation)
    assert machine.deadline(TimerKind.JOIN, "c") == 31_000, "it is not put off"
    machine.classic_join(owned={0, 1, 2, 3})
    assert machine.deadline(TimerKind.JOIN, "c") is None


def test_administrator_removes_members_with_a_code_for_each() -> None:
    machine = Mixed()
    machine.join("a")
    machine.classic_join()
    identities = [MemberIdentity(each) for each in ("c", "c", "a", "nobody")]
    result = classic_members.leave(machine.group, identities, machine.context())
    responses, outcome = result.response.members, result
    codes = [response.error_code for response in responses]
    assert codes == [E.NONE, *[E.UNKNOWN_MEMBER_ID] * 3]
    assert outcome is not None
    machine.apply(outcome)
    assert set(machine.group.members) == {"a"}


@pytest.mark.parametrize(
    ("gone", "max_size", "expected"),
    [({"a"}, 9, True), ({"a"}, 1, False), ({"c"}, 9, False), ({"a", "c", "d"}, 9, False)],
)
def test_group_is_downgraded_when_its_last_consumer_protocol_member_leaves(
    gone: set[str], max_size: int, expected: bool
) -> None:
    machine = Mixed()
    machine.join("a")
    machine.classic_join()
    machine.classic_join("d")
    assert may_downgrade(machine.group, gone, max_size) is expected


def test_group_is_not_downgraded_later_when_a_classic_member_leaves() -> None:
    machine = Mixed(settings=replace_settings(downgrade=False))
    machine.join("a")
    machine.classic_join()
    machine.classic_join("d")
    machine.fence("a")
    assert may_downgrade(machine.group, {"c"}, 9) is False


def test_downgraded_group_is_restored_from_its_records() -> None:
    machine = Mixed()
    machine.join("a")
    machine.classic_join()
    machine.fence("a")
    stored = machine.shard.groups["g"]
    assert isinstance(stored, ClassicGroup)
    assert (stored.generation_id, stored.protocol_name, set(stored.members)) == (2, "range", {"c"})


def classic_group(metadata: bytes, **options: Any) -> ClassicGroup:
    options = {"state": GroupState.STABLE, "protocol_name": "range", **options}
    group = ClassicGroup("g", generation_id=7, protocol_type="consumer", **options)
    image = topics(t=4)
    for number, name in enumerate(("x", "y")):
        held = {id_of("t"): frozenset({number * 2, number * 2 + 1})}
        member = Member(name, None, "c", "/h", 5, 6, {"range": metadata})
        member.assignment = held_bytes(held, 1, image)
        group.members[name] = member
    group.leader_id = "x"
    return group


def test_upgrade_and_downgrade_keep_the_assignments_of_members() -> None:
    image = topics(t=4)
    group = to_consumer(classic_group(subscription()), image)
    assert group is not None
    assert (group.epoch, group.target_epoch, group.state.value) == (7, 7, "Stable")
    assert group.members["y"].assigned == {id_of("t"): frozenset({2, 3})}
    back = to_classic(group, set(), None, image, ConsumerMachine().context().now)
    assert back is not None
    assert {each: read_held(m.assignment, image) for each, m in back.members.items()} == {
        each: member.assigned for each, member in group.members.items()
    }
    assert (back.generation_id, back.state, back.subscribed_topics) == (
        7,
        GroupState.STABLE,
        frozenset({"t"}),
    )


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1\xff", b"\xff\xff"])
def test_group_whose_metadata_cannot_be_read_keeps_its_protocol(metadata: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_subscription(metadata)
    assert to_consumer(classic_group(metadata), topics(t=4)) is None


def test_subscription_of_a_later_version_is_read_as_the_last_known() -> None:
    data = struct.pack(">h", 99) + subscription("t", version=3)[2:]
    assert read_subscription(data).topics == ["t"]


def test_static_member_that_changes_to_the_classic_protocol_downgrades_the_group() -> None:
    machine = Mixed()
    machine.join("a", instance_id="i")
    joined = machine.classic_join("", group_instance_id="i")
    assert joined.downgraded is not None
    assert set(joined.downgraded.members) == {"made-up"}
    stored = machine.shard.groups["g"]
    assert isinstance(stored, ClassicGroup)
    held = read_held(stored.members["made-up"].assignment, machine.image)
    assert held == {id_of("t"): frozenset({0, 1, 2, 3})}


def test_static_member_changes_to_the_consumer_protocol_without_having_left() -> None:
    """A classic client does not announce that it leaves, so its instance id is not released."""
    machine = Mixed()
    machine.join("a")
    machine.fence("a")
    machine.classic_join("", group_instance_id="i")
    assert set(machine.group.members) == {"made-up"}
    epoch = machine.group.epoch
    assert machine.join("b", instance_id="i").error_code == E.NONE
    assert set(machine.group.members) == {"b"}
    assert machine.group.members["b"].classic is None
    assert machine.group.epoch == epoch, "no member has to rebalance"
    assert code_of(machine.classic_sync, epoch, "made-up", group_instance_id="i") is (
        E.FENCED_INSTANCE_ID
    )


def test_group_is_not_downgraded_where_the_policy_forbids_it() -> None:
    machine = Mixed(settings=replace_settings(downgrade=False))
    machine.join("a")
    machine.classic_join()
    machine.fence("a")
    assert set(machine.group.members) == {"c"}
    assert machine.classic_beat(2) is E.REBALANCE_IN_PROGRESS


def replace_settings(**changes: Any) -> ConsumerSettings:
    return ConsumerSettings()._replace(**changes)


def test_values_of_members_are_never_changed_in_place() -> None:
    machine = Mixed()
    machine.join("a")
    before = machine.group.members["a"]
    copy = replace(before)
    machine.set_topics(t=8)
    machine.beat("a", 1)
    assert before == copy
