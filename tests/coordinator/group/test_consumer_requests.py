"""Consumer groups over real logs and a clock that the test moves: timeouts, restarts, the disk."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import GroupState
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.consumer.migration import held_bytes, read_held
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import Uuid
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from odradek.protocol.messages.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from odradek.protocol.messages.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.coordinator.group.consumer.test_migration import subscription
from tests.coordinator.group.on_disk import (
    OFFSETS_ID,
    OnDisk,
    coordinator,
    image_of,
    now,
    settled,
    topic,
)
from tests.coordinator.group.test_group_coordinator import (
    CLIENT,
    commit,
    heartbeat,
    join_alone,
    stable,
    sync,
)
from tests.helpers.event_loop import on_loop

E = ErrorCode
TOPIC_ID = Uuid(b"t" * 16)


def beat(
    state: OnDisk, member_id: str, epoch: int, owned: Any = None, instance_id: str | None = None
) -> Any:
    more: dict[str, Any] = {"topic_partitions": owned}
    if epoch == 0:
        more = {
            "topic_partitions": [],
            "subscribed_topic_names": ["t"],
            "rebalance_timeout_ms": 10_000,
        }
    request = ConsumerGroupHeartbeatRequest("g", member_id, epoch, instance_id=instance_id, **more)
    return now(state.groups.consumers.heartbeat(request, CLIENT, 1))


def group_of(state: OnDisk) -> ConsumerGroup:
    group = state.groups.shards.of("g").groups["g"]
    assert isinstance(group, ConsumerGroup)
    return group


@on_loop
async def test_members_without_heartbeats_are_removed_one_after_the_other(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        beat(state, "a", 0)
        await state.advance(1_000)
        beat(state, "b", 0)
        await state.advance(43_999)
        assert set(group_of(state).members) == {"a", "b"}
        await state.advance(1)
        assert set(group_of(state).members) == {"b"}
        await state.advance(1_000)
        assert group_of(state).members == {}
        assert beat(state, "a", 1).error_code == E.UNKNOWN_MEMBER_ID


@on_loop
async def test_member_that_does_not_revoke_in_time_is_removed(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", partitions=2))
        beat(state, "a", 0)
        beat(state, "b", 0)
        held = [TopicPartitions(b"t" * 16, [0, 1])]
        for second in range(10):
            response = beat(state, "a", 1, held)
            assert (response.error_code, response.member_epoch) == (0, 1), second
            beat(state, "b", 2)
            await state.advance(1_000)
        assert set(group_of(state).members) == {"b"}
        assert beat(state, "a", 1, held).error_code == E.UNKNOWN_MEMBER_ID
        assert beat(state, "b", 2).assignment.topic_partitions[0].partitions == [0, 1]


@on_loop
async def test_removal_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        beat(state, "a", 0)
        state.append_error = E.KAFKA_STORAGE_ERROR
        await state.advance(45_000)
        assert set(group_of(state).members) == {"a"}
        state.append_error = None
        await state.advance(1_000)
        assert group_of(state).members == {}


@on_loop
async def test_heartbeat_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.append_error = E.KAFKA_STORAGE_ERROR
        assert beat(state, "a", 0).error_code == E.NOT_COORDINATOR
        assert "g" not in state.groups.shards.of("g").groups


@on_loop
async def test_responses_wait_for_the_disk(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        response = beat(state, "a", 0)
        assert not response.done
        behind = beat(state, "a", 1)
        assert not behind.done, "it may depend on uncommitted records"
        state.flushes[0].set_result(None)
        assert (await settled(response)).member_epoch == 1
        assert (await settled(behind)).error_code == 0
        assert beat(state, "a", 1).error_code == 0, "no record is written"


@on_loop
async def test_descriptions_show_what_is_committed(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        beat(state, "a", 0)
        shard = state.groups.shards.of("g")
        assert set(group_of(state).members) == {"a"}, "the latest state"
        assert (shard.committed_group("g"), shard.committed_groups()) == (None, [])
        beat(state, "b", 0)
        state.flushes[0].set_result(None)
        await asyncio.sleep(0)
        seen = shard.committed_group("g")
        assert isinstance(seen, ConsumerGroup)
        assert (set(seen.members), seen.epoch) == ({"a"}, 1)
        assert (set(group_of(state).members), group_of(state).epoch) == ({"a", "b"}, 2)
        state.flushes[1].set_result(None)
        await asyncio.sleep(0)
        assert shard.committed_group("g") is group_of(state)
        state.flushes.clear()
        beat(state, "b", -1)
        seen = shard.committed_group("g")
        assert isinstance(seen, ConsumerGroup)
        assert set(seen.members) == {"a", "b"}
        state.flushes[0].set_result(None)
        await asyncio.sleep(0)
        assert shard.committed_groups() == [group_of(state)]


@on_loop
async def test_committed_view_of_a_classic_group_has_no_uncommitted_assignment(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as state:
        joined = await join_alone(state)
        state.flushes = []
        waiting = sync(state, joined)
        shard = state.groups.shards.of("g")
        seen = shard.committed_group("g")
        assert isinstance(seen, ClassicGroup)
        assert [member.assignment for member in seen.members.values()] == [b""]
        state.flushes[0].set_result(None)
        assert (await settled(waiting)).assignment == b"a"
        seen = shard.committed_group("g")
        assert isinstance(seen, ClassicGroup)
        assert [member.assignment for member in seen.members.values()] == [b"a"]


@on_loop
async def test_members_survive_a_restart_and_their_sessions_begin_again(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        beat(state, "a", 0)
    async with coordinator(tmp_path) as state:
        assert beat(state, "a", 1).member_epoch == 1
        await state.advance(44_000)
        assert set(group_of(state).members) == {"a"}
        await state.advance(1_000)
        assert group_of(state).members == {}


@on_loop
async def test_members_have_their_own_time_outs_after_a_restart(tmp_path: Path) -> None:
    """A classic member has its session timeout. A member that has to revoke partitions has its
    rebalance timeout."""
    two = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", partitions=2))
    async with coordinator(tmp_path) as state:
        state.image = two
        beat(state, "a", 0)
        await settled(state.groups.join(classic_join("c"), CLIENT, 9))
        held = [TopicPartitions(TOPIC_ID, [0, 1])]
        assert beat(state, "a", 1, held).member_epoch == 1, "it has to revoke one"
    async with coordinator(tmp_path) as state:
        state.image = two
        await state.advance(9_999)
        assert set(group_of(state).members) == {"a", "c"}
        await state.advance(1)
        assert group_of(state).members == {}, "a's rebalance timeout is as long as c's session"


@on_loop
async def test_classic_group_with_unreadable_metadata_is_not_upgraded(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as state:
        joined = await stable(state)
        assert beat(state, "a", 0).error_code == E.GROUP_ID_NOT_FOUND
        assert set(state.groups.shards.of("g").groups["g"].members) == {joined.member_id}


def classic_join(member_id: str, *topics: str, **options: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        "g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", subscription(*topics))],
        **options,
    )


async def two_classic_members(state: OnDisk) -> list[Any]:
    """Make a stable classic group of two members with one partition each."""
    ids = [now(state.groups.join(classic_join(""), CLIENT, 9)).member_id for _ in range(2)]
    waiting = [state.groups.join(classic_join(each), CLIENT, 9) for each in ids]
    await state.advance(0)
    joined = [await settled(each) for each in waiting]
    plan = [
        SyncGroupRequestAssignment(each, held_bytes({TOPIC_ID: frozenset({at})}, 1, state.image))
        for at, each in enumerate(ids)
    ]
    for each in sorted(joined, key=lambda response: response.member_id != response.leader):
        request = SyncGroupRequest("g", each.generation_id, each.member_id, assignments=plan)
        assert (await settled(state.groups.sync(request))).error_code == 0
    return joined


@pytest.mark.parametrize(
    ("max_size", "expected"),
    [(1, E.GROUP_ID_NOT_FOUND), (2, E.GROUP_MAX_SIZE_REACHED), (3, E.NONE)],
)
def test_classic_group_that_is_too_large_for_a_consumer_group_keeps_its_protocol(
    tmp_path: Path, max_size: int, expected: ErrorCode
) -> None:
    @on_loop
    async def run(path: Path) -> None:
        async with coordinator(path, **{"group.consumer.max.size": max_size}) as state:
            await two_classic_members(state)
            assert beat(state, "a", 0).error_code == expected

    run(tmp_path)


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("BIDIRECTIONAL", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_migration_policy_decides_about_changes_of_protocol(
    tmp_path: Path, policy: str, up: bool, down: bool
) -> None:
    @on_loop
    async def run(path: Path) -> None:
        config = {"group.consumer.migration.policy": policy}
        async with coordinator(path, **config) as state:
            await two_classic_members(state)
            assert beat(state, "a", 0).error_code == (E.NONE if up else E.GROUP_ID_NOT_FOUND)
        async with coordinator(path / "other", **config) as state:
            beat(state, "a", 0)
            await settled(state.groups.join(classic_join("c"), CLIENT, 9))
            beat(state, "a", -1)
            group = state.groups.shards.of("g").groups["g"]
            assert (set(group.members), isinstance(group, ClassicGroup)) == ({"c"}, down)

    run(tmp_path)


@on_loop
async def test_members_of_an_upgraded_group_keep_what_they_hold_and_have_their_own_sessions(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as state:
        state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", partitions=2))
        joined = await two_classic_members(state)
        ids = [each.member_id for each in joined]
        assert beat(state, "a", 0).member_epoch == 2
        members = group_of(state).members
        assert [members[each].assigned for each in ids] == [
            {TOPIC_ID: frozenset({0})},
            {TOPIC_ID: frozenset({1})},
        ]
        await state.advance(9_999)
        assert set(group_of(state).members) == {*ids, "a"}
        await state.advance(1)
        assert set(group_of(state).members) == {"a"}


@on_loop
async def test_classic_members_that_wait_during_an_upgrade_have_to_join_again(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as state:
        first, second = await two_classic_members(state)
        waiting = state.groups.join(classic_join(first.member_id, "t", "u"), CLIENT, 9)
        assert not waiting.done
        assert beat(state, "a", 0).error_code == 0
        assert (await settled(waiting)).error_code == E.REBALANCE_IN_PROGRESS
        assert {first.member_id, second.member_id, "a"} == set(group_of(state).members)


async def returned_classic(state: OnDisk, *topics: str) -> tuple[Any, Any]:
    """Let the static member `i` leave temporarily, and join again with the classic protocol. Return
    the responses to its JoinGroup and its SyncGroup."""
    beat(state, "a", -2, instance_id="i")
    join = classic_join("", *topics, group_instance_id="i")
    joined = await settled(state.groups.join(join, CLIENT, 9))
    assert joined.error_code == 0
    request = SyncGroupRequest(
        "g", joined.generation_id, joined.member_id, group_instance_id="i", protocol_name="range"
    )
    return joined, await settled(state.groups.sync(request))


@on_loop
async def test_static_member_that_downgrades_a_settled_group_needs_no_rebalance(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as state:
        state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", partitions=2))
        beat(state, "a", 0, instance_id="i")
        joined, synced = await returned_classic(state)
        assert synced.error_code == 0, "nothing has changed: it need not rebalance"
        held = read_held(synced.assignment, state.image)
        assert held == {b"t" * 16: frozenset({0, 1})}
        group = state.groups.shards.of("g").groups["g"]
        assert isinstance(group, ClassicGroup)
        assert (group.state.value, group.leader_id) == ("Stable", joined.member_id)
        await state.advance(9_999)
        assert set(group.members) == {joined.member_id}
        await state.advance(1)
        assert group.members == {}, "its session is of its own length"


@on_loop
async def test_downgrade_by_a_static_member_with_another_subscription_rebalances(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as state:
        beat(state, "a", 0, instance_id="i")
        _, synced = await returned_classic(state, "t", "u")
        assert synced.error_code == E.ILLEGAL_GENERATION
        assert state.groups.shards.of("g").groups["g"].state is GroupState.PREPARING_REBALANCE


@on_loop
async def test_downgrade_by_a_static_member_rebalances_where_another_waits_for_partitions(
    tmp_path: Path,
) -> None:
    """Otherwise the other member would not learn its new partitions, and no member would read
    them."""
    async with coordinator(tmp_path) as state:
        state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", partitions=2))
        beat(state, "a", 0, instance_id="i")
        classic = await settled(state.groups.join(classic_join("c"), CLIENT, 9))
        assert group_of(state).members["c"].assigned == {}
        _, synced = await returned_classic(state)
        assert synced.error_code == E.REBALANCE_IN_PROGRESS
        assert heartbeat(state, classic) is E.REBALANCE_IN_PROGRESS


@on_loop
async def test_simple_group_becomes_a_consumer_group_and_keeps_its_offsets(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as state:
        commit(state, 5)
        assert beat(state, "a", 0).error_code == 0
    async with coordinator(tmp_path) as state:
        assert set(group_of(state).members) == {"a"}
        assert state.groups.shards.of("g").offsets.of_group("g")["t"][0].offset == 5


@on_loop
async def test_empty_consumer_group_expires_with_its_offsets(tmp_path: Path) -> None:
    async with coordinator(tmp_path, **{"offsets.retention.minutes": 1}) as state:
        commit(state, 5)
        beat(state, "a", 0)
        beat(state, "a", -1)
        await state.advance(60_000)
        await state.groups.offsets.expire()
        assert "g" not in state.groups.shards.of("g").groups
    async with coordinator(tmp_path) as state:
        assert "g" not in state.groups.shards.of("g").groups


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ("range", "range"),
        ("org.apache.kafka.coordinator.group.assignor.UniformAssignor,range", "uniform"),
        ("com.example.Mine", None),
    ],
)
def test_assignors_are_configured_by_name_or_class(
    tmp_path: Path, configured: str, expected: str | None
) -> None:
    @on_loop
    async def run(path: Path) -> None:
        async with coordinator(path, **{"group.consumer.assignors": configured}) as state:
            assert state.groups.consumers.settings("g").assignors[0] == expected

    if expected is not None:
        run(tmp_path)
        return
    with pytest.raises(KafkaError) as error:
        run(tmp_path)
    assert error.value.code is E.INVALID_CONFIG


@on_loop
async def test_group_configs_override_the_brokers_within_its_bounds(tmp_path: Path) -> None:
    config = {"group.consumer.min.session.timeout.ms": 2_000}
    async with coordinator(tmp_path, **config) as state:
        own = {"consumer.session.timeout.ms": "3000", "consumer.heartbeat.interval.ms": "1"}
        state.image = replace(state.image, group_configs={"g": own})
        response = beat(state, "a", 0)
        assert response.heartbeat_interval_ms == 5_000, "no shorter than the broker allows"
        await state.advance(2_999)
        assert set(group_of(state).members) == {"a"}
        await state.advance(1)
        assert group_of(state).members == {}
