"""The group coordinator: timers on a manual clock, waiting for the disk, restarts, stopping."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from odradek import slicing
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import GroupState
from odradek.coordinator.group.group_client import GroupClient
from odradek.errors import ErrorCode
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from odradek.protocol.messages.leave_group_request import MemberIdentity
from odradek.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from odradek.results import Result
from odradek.slicing import ELEMENTS_PER_SLICE
from tests.coordinator.group.on_disk import (
    OFFSETS_ID,
    OnDisk,
    coordinator,
    image_of,
    now,
    settled,
    topic,
)
from tests.helpers.event_loop import on_loop
from tests.helpers.metadata_deltas import after_deletion, delta_between

CLIENT = GroupClient("c", "/127.0.0.1")
E = ErrorCode


def join(state: OnDisk, member_id: str = "", version: int = 9, **options: Any) -> Any:
    options = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, **options}
    request = JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        **options,
    )
    return now(state.groups.join(request, CLIENT, version))


async def join_alone(state: OnDisk) -> Any:
    """Return the response to a first member, after the initial delay of 0."""
    waiting = join(state, join(state).member_id)
    await state.advance(0)
    return await settled(waiting)


def sync(state: OnDisk, joined: Any) -> Any:
    plan = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")]
    return now(
        state.groups.sync(
            SyncGroupRequest(
                group_id="g",
                member_id=joined.member_id,
                generation_id=joined.generation_id,
                assignments=plan,
            )
        )
    )


async def stable(state: OnDisk) -> Any:
    joined = await join_alone(state)
    response = await settled(sync(state, joined))
    assert response.error_code == 0
    return joined


async def stable_static(state: OnDisk) -> Any:
    """Return the response to the only member, which is static."""
    waiting = join(state, group_instance_id="i")
    await state.advance(0)
    joined = await settled(waiting)
    request = SyncGroupRequest(
        group_id="g",
        member_id=joined.member_id,
        group_instance_id="i",
        generation_id=joined.generation_id,
    )
    assert now(state.groups.sync(request)).error_code == 0
    return joined


def heartbeat(state: OnDisk, joined: Any) -> ErrorCode:
    return state.groups.heartbeat(
        HeartbeatRequest(
            group_id="g", member_id=joined.member_id, generation_id=joined.generation_id
        )
    )


def commit(state: OnDisk, offset: int = 5, joined: Any = None, index: int = 0) -> Any:
    partition = OffsetCommitRequestPartition(index, offset, -1, "")
    request = OffsetCommitRequest(
        group_id="g",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    if joined is not None:
        request.member_id = joined.member_id
        request.generation_id_or_member_epoch = joined.generation_id
    return now(state.groups.offsets.commit(request, 9))


def code_of(response: Any) -> ErrorCode:
    return ErrorCode(response.topics[0].partitions[0].error_code)


@on_loop
async def test_session_ends_at_its_deadline(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        joined = await stable(state)
        for _ in range(3):
            await state.advance(9_999)
            assert heartbeat(state, joined) is E.NONE
        await state.advance(10_000)
        assert heartbeat(state, joined) is E.UNKNOWN_MEMBER_ID


@on_loop
async def test_commits_keep_the_session(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        joined = await stable(state)
        for _ in range(3):
            await state.advance(9_999)
            assert code_of(commit(state, joined=joined)) is E.NONE
        assert heartbeat(state, joined) is E.NONE


@on_loop
async def test_stable_group_and_its_offsets_survive_a_restart(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        joined = await stable(state)
        assert code_of(commit(state, 42, joined)) is E.NONE
    async with coordinator(tmp_path) as state:
        assert heartbeat(state, joined) is E.NONE
        shard = state.groups.shards.of("g")
        assert shard.groups["g"].state is GroupState.STABLE
        assert shard.offsets.of_group("g")["t"][0].offset == 42
        await state.advance(10_000)
        assert heartbeat(state, joined) is E.UNKNOWN_MEMBER_ID


@on_loop
async def test_heartbeats_succeed_while_the_shard_is_loading(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        joined = await stable(state)
    async with coordinator(tmp_path, start=False) as state:
        state.groups.start()
        assert heartbeat(state, joined) is E.NONE
        assert join(state).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert sync(state, joined).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert code_of(commit(state)) is E.COORDINATOR_LOAD_IN_PROGRESS
        await state.groups.runtime.loads_done()
        assert heartbeat(state, joined) is E.NONE


@on_loop
async def test_commit_is_completed_after_its_flush(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        waiting = commit(state)
        assert isinstance(waiting, Result)
        await asyncio.sleep(0)
        assert not waiting.done
        state.flushes[0].set_result(None)
        assert code_of(await settled(waiting)) is E.NONE


@on_loop
async def test_commit_that_cannot_be_appended_is_an_error(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.append_error = E.KAFKA_STORAGE_ERROR
        assert code_of(commit(state)) is E.NOT_COORDINATOR
        state.append_error = E.MESSAGE_TOO_LARGE
        assert code_of(commit(state)) is E.UNKNOWN_SERVER_ERROR
        state.append_error = None
        state.flushes = []
        waiting = commit(state)
        state.flushes[0].cancel()
        assert code_of(await settled(waiting)) is E.NOT_COORDINATOR


@on_loop
async def test_assignment_is_returned_after_its_flush(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        joined = await join_alone(state)
        state.flushes = []
        waiting = sync(state, joined)
        await asyncio.sleep(0)
        assert not waiting.done
        state.flushes[0].set_result(None)
        assert (await settled(waiting)).assignment == b"a"


@on_loop
async def test_failed_flush_completes_the_waiting_requests(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        joined = await join_alone(state)
        state.flushes = []
        waiting = sync(state, joined)
        state.leads = False
        state.flushes[0].set_exception(OSError("disk on fire"))
        assert (await settled(waiting)).error_code == E.NOT_COORDINATOR
        assert heartbeat(state, joined) is E.NOT_COORDINATOR


APPEND_ERRORS = [
    (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
    (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
    (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
]


def classic_group(state: OnDisk) -> ClassicGroup:
    group = state.groups.shards.of("g").groups["g"]
    assert isinstance(group, ClassicGroup)
    return group


def committed_classic_group(state: OnDisk) -> ClassicGroup:
    group = state.groups.shards.of("g").committed_group("g")
    assert isinstance(group, ClassicGroup)
    return group


@on_loop
@pytest.mark.parametrize(("error", "code"), APPEND_ERRORS)
async def test_members_stay_when_the_record_of_the_emptied_group_cannot_be_appended(
    tmp_path: Path, error: ErrorCode, code: ErrorCode
) -> None:
    """LeaveGroup empties a group in which a JoinGroup waits, and the append fails. Both requests
    get the error."""
    async with coordinator(tmp_path) as state:
        first = await stable(state)
        second = join(state).member_id
        waiting = join(state, second)
        before = dataclasses.asdict(classic_group(state).committed_copy())
        state.append_error = error
        gone = [MemberIdentity(member_id=each) for each in (first.member_id, second)]
        left = now(state.groups.leave("g", gone))
        assert left.error_code == code
        assert waiting.done
        assert waiting.get().error_code == code
        after = dataclasses.asdict(classic_group(state))
        for field in before.keys() - {"members", "awaiting_join_count"}:
            assert after[field] == before[field], field
        assert list(after["members"]) == [first.member_id, second]
        assert classic_group(state).awaiting_join_count == 0
        state.append_error = None
        left = now(state.groups.leave("g", gone))
        assert [each.error_code for each in left.members] == [0, 0]
        assert classic_group(state).state is GroupState.EMPTY


@on_loop
@pytest.mark.parametrize(("error", "code"), APPEND_ERRORS)
async def test_assignment_that_cannot_be_appended_is_an_error_and_a_rebalance(
    tmp_path: Path, error: ErrorCode, code: ErrorCode
) -> None:
    async with coordinator(tmp_path) as state:
        joined = await join_alone(state)
        state.append_error = error
        assert sync(state, joined).error_code == code
        group = classic_group(state)
        assert group.state is GroupState.PREPARING_REBALANCE
        assert group.generation_id == joined.generation_id
        assert [each.assignment for each in group.members.values()] == [b""]


@on_loop
@pytest.mark.parametrize(("error", "code"), APPEND_ERRORS)
async def test_static_member_keeps_its_id_when_the_new_one_cannot_be_appended(
    tmp_path: Path, error: ErrorCode, code: ErrorCode
) -> None:
    async with coordinator(tmp_path) as state:
        joined = await stable_static(state)
        before = classic_group(state).committed_copy()
        state.append_error = error
        assert join(state, group_instance_id="i").error_code == code
        assert classic_group(state) == before
        state.append_error = None
        again = join(state, group_instance_id="i")
        assert (again.error_code, again.generation_id) == (0, joined.generation_id)


@on_loop
async def test_reads_show_a_static_members_new_id_when_it_is_committed(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        joined = await stable_static(state)
        state.flushes = []
        waiting = join(state, group_instance_id="i")
        (new_id,) = classic_group(state).members
        assert new_id != joined.member_id
        described = committed_classic_group(state)
        assert list(described.members) == [joined.member_id]
        assert described.static_members == {"i": joined.member_id}
        state.flushes[0].set_result(None)
        assert (await settled(waiting)).member_id == new_id
        described = committed_classic_group(state)
        assert list(described.members) == [new_id]


@on_loop
async def test_reads_show_members_until_their_leaving_is_committed(tmp_path: Path) -> None:
    """A static member joins while the record is not committed. The committed view lacks it."""
    async with coordinator(tmp_path) as state:
        joined = await stable(state)
        state.flushes = []
        waiting = now(state.groups.leave("g", [MemberIdentity(member_id=joined.member_id)]))
        join(state, group_instance_id="i")
        described = committed_classic_group(state)
        assert described.state is GroupState.STABLE
        assert list(described.members) == [joined.member_id]
        assert described.static_members == {}
        state.flushes[0].set_result(None)
        assert (await settled(waiting)).members[0].error_code == 0


@on_loop
async def test_superseded_sync_is_completed_when_the_next_one_cannot_be_appended(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as state:
        joined = await join_alone(state)
        state.flushes = []
        first = sync(state, joined)
        state.append_error = E.KAFKA_STORAGE_ERROR
        assert sync(state, joined).error_code == E.NOT_COORDINATOR
        assert first.done
        assert first.get().error_code == E.REBALANCE_IN_PROGRESS


@on_loop
async def test_timers_are_armed_when_the_record_cannot_be_appended(tmp_path: Path) -> None:
    """The append of an empty generation fails, and is tried again until it succeeds."""
    async with coordinator(tmp_path) as state:
        joined = await stable(state)
        pending = join(state, session_timeout_ms=300_000).member_id
        state.append_error = E.KAFKA_STORAGE_ERROR
        await state.advance(10_000)  # the session of the only member ends
        await state.advance(60_000)  # and the join phase
        group = classic_group(state)
        assert joined.member_id not in group.members
        assert (group.state, list(group.pending_joins)) == (
            GroupState.PREPARING_REBALANCE,
            [pending],
        )
        await state.advance(1_000)
        state.append_error = None
        await state.advance(1_000)
        assert (group.state, list(group.pending_joins)) == (GroupState.EMPTY, [pending])
        await state.advance(228_000)
        assert not group.pending_joins


@on_loop
async def test_static_member_whose_record_is_not_committed_in_time_keeps_its_new_id(
    tmp_path: Path,
) -> None:
    """The record stays in the log, so a restart finds the new id."""
    async with coordinator(tmp_path) as state:
        joined = await stable_static(state)
        state.flushes = []
        again = join(state, group_instance_id="i")
        await state.advance(5_000)
        assert again.get().error_code == E.COORDINATOR_NOT_AVAILABLE
        group = classic_group(state)
        (new_id,) = group.members
        assert new_id != joined.member_id
        assert group.static_members == {"i": new_id}
        assert group.leader_id == new_id
        state.flushes[0].set_result(None)
        await state.advance(0)
    async with coordinator(tmp_path) as state:
        group = classic_group(state)
        assert list(group.members) == [new_id]


@on_loop
async def test_leaving_waits_for_the_record_of_the_empty_group(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        joined = await stable(state)
        state.flushes = []
        waiting = now(state.groups.leave("g", [MemberIdentity(member_id=joined.member_id)]))
        assert isinstance(waiting, Result)
        state.flushes[0].set_result(None)
        assert (await settled(waiting)).members[0].error_code == 0


@on_loop
async def test_stop_completes_waiting_requests_and_refuses_new_ones(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        await stable(state)
        waiting = join(state, join(state).member_id)
        assert isinstance(waiting, Result)
        state.groups.stop()
        assert (await settled(waiting)).error_code == E.NOT_COORDINATOR
        assert join(state).error_code == E.COORDINATOR_NOT_AVAILABLE
        assert code_of(commit(state)) is E.COORDINATOR_NOT_AVAILABLE
        await state.advance(0)
        assert state.timers.armed == 0


@on_loop
async def test_disconnected_client_does_not_hold_up_the_rebalance(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        joined = await stable(state)
        waiting = join(state, join(state).member_id)
        waiting.cancel()
        again = join(state, joined.member_id)
        assert (await settled(again)).generation_id == 2


@on_loop
async def test_group_without_members_is_dropped(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        request = JoinGroupRequest(group_id="odd", session_timeout_ms=10_000)
        assert (
            now(state.groups.join(request, CLIENT, 9)).error_code == E.INCONSISTENT_GROUP_PROTOCOL
        )
        assert join(state).error_code == E.MEMBER_ID_REQUIRED
        shard = state.groups.shards.of("g")
        assert set(shard.groups) == {"g"}
        await state.advance(10_000)
        assert shard.groups == {}
        assert state.timers.armed == 0


@on_loop
async def test_recreated_offsets_topic_begins_empty(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        joined = await stable(state)
        state.manager.delete(next(iter(state.manager.all_logs())).topic_partition)
        state.image = after_deletion(state.image, CONSUMER_OFFSETS)
        state.groups.leadership_changed(0)
        assert heartbeat(state, joined) is E.NOT_COORDINATOR
        new_id = b"n" * 16
        recreated = topic(CONSUMER_OFFSETS, new_id)
        state.manager.create(*_first_partition(recreated))
        state.image = image_of(topic("t"), recreated)
        state.groups.leadership_changed(0)
        await state.advance(0)
        assert heartbeat(state, joined) is E.UNKNOWN_MEMBER_ID


def _first_partition(image: Any) -> tuple[Any, Any]:
    from tests.coordinator.group.on_disk import OFFSETS

    return OFFSETS, image.topic_id


@on_loop
async def test_offsets_of_a_deleted_topic_are_removed_permanently(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        commit(state)
        old = state.image
        state.image = after_deletion(old, "t")
        state.groups.on_metadata(delta_between(old, state.image), state.image)
        assert state.groups.shards.of("g").offsets.of_group("g") == {}
    async with coordinator(tmp_path) as state:
        assert state.groups.shards.of("g").offsets.of_group("g") == {}


@on_loop
async def test_topic_that_is_deleted_while_the_shard_loads_leaves_no_offsets(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as state:
        assert code_of(commit(state)) is E.NONE
    async with coordinator(tmp_path, start=False) as state:
        state.groups.start()
        assert code_of(commit(state)) is E.COORDINATOR_LOAD_IN_PROGRESS
        old = state.image
        state.image = after_deletion(old, "t")
        state.groups.on_metadata(delta_between(old, state.image), state.image)
        await state.groups.runtime.loads_done()
        assert state.groups.shards.of("g").offsets.of_group("g") == {}
    async with coordinator(tmp_path) as state:
        assert state.groups.shards.of("g").offsets.of_group("g") == {}


@pytest.mark.parametrize("exists_again", [True, False])
@on_loop
async def test_offsets_that_a_former_coordinator_committed_for_a_new_topic_stay(
    tmp_path: Path, exists_again: bool
) -> None:
    """The deletion, the new topic and the election arrive together."""
    async with coordinator(tmp_path) as state:
        assert code_of(commit(state)) is E.NONE  # by the former coordinator
    async with coordinator(tmp_path, start=False) as state:
        state.leads = False
        state.groups.start()
        old = state.image
        state.image = after_deletion(old, "t")
        if exists_again:
            state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", b"n" * 16))
        state.leads, state.leader_epoch = True, 1
        state.groups.leadership_changed(0)
        state.groups.on_metadata(delta_between(old, state.image), state.image)
        await state.groups.runtime.loads_done()
        assert bool(state.groups.shards.of("g").offsets.of_group("g")) == exists_again


@on_loop
async def test_offsets_stay_if_the_load_ends_in_a_later_leader_epoch(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        assert code_of(commit(state)) is E.NONE  # by the coordinator of leader epoch 1
    async with coordinator(tmp_path, start=False) as state:
        state.groups.start()
        old = state.image
        state.image = after_deletion(old, "t")
        state.groups.on_metadata(delta_between(old, state.image), state.image)
        old = state.image
        state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", b"n" * 16))
        state.leader_epoch = 2
        state.groups.leadership_changed(0)
        state.groups.on_metadata(delta_between(old, state.image), state.image)
        await state.groups.runtime.loads_done()
        assert state.groups.shards.of("g").offsets.of_group("g")


@on_loop
async def test_group_over_the_limit_after_a_restart_rebalances(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        a = await stable(state)
        joining = join(state, join(state).member_id)
        again = join(state, a.member_id)
        b = await settled(joining)
        responses = [await settled(again), b]
        for joined in sorted(
            responses, key=lambda each: each.member_id != each.leader, reverse=True
        ):
            waiting = sync(state, joined)
        await settled(waiting)
    config: dict[str, object] = {"group.max.size": 1}
    async with coordinator(tmp_path, **config) as state:
        assert state.groups.shards.of("g").groups["g"].state is GroupState.PREPARING_REBALANCE


MINUTE_MS = 60_000


@on_loop
async def test_offsets_and_their_group_expire_permanently(tmp_path: Path) -> None:
    options = {"offsets.retention.minutes": 2}
    async with coordinator(tmp_path, **options) as state:
        joined = await stable(state)
        commit(state, joined=joined)
        state.groups.leave("g", [MemberIdentity(member_id=joined.member_id)])
        await state.advance(2 * MINUTE_MS - 1)
        await state.groups.offsets.expire()
        assert state.groups.shards.of("g").offsets.of_group("g")
        await state.advance(1)
        await state.groups.offsets.expire()
        assert "g" not in state.groups.shards.of("g").groups
        assert state.groups.shards.of("g").offsets.of_group("g") == {}
    async with coordinator(tmp_path, **options) as state:
        assert "g" not in state.groups.shards.of("g").groups


@on_loop
async def test_offsets_expire_in_time_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offset that is committed in the meantime does not expire, and neither does its group."""
    count = 3 * ELEMENTS_PER_SLICE
    async with coordinator(tmp_path, **{"offsets.retention.minutes": 1}) as state:
        state.image = image_of(topic(CONSUMER_OFFSETS, OFFSETS_ID), topic("t", partitions=count))
        for index in range(count):
            commit(state, 5, index=index)
        await state.advance(MINUTE_MS)
        left: list[int] = []
        end_slice = slicing.end_slice

        async def ended() -> None:
            left.append(len(state.groups.shards.of("g").offsets.of_group("g")["t"]))
            if len(left) == 1:
                commit(state, 6, index=count - 1)
            await end_slice()

        monkeypatch.setattr(slicing, "end_slice", ended)
        await state.groups.offsets.expire()
        assert left == [2 * ELEMENTS_PER_SLICE, ELEMENTS_PER_SLICE, 1]
        shard = state.groups.shards.of("g")
        assert list(shard.offsets.of_group("g")["t"]) == [count - 1]
        assert "g" in shard.groups


@on_loop
async def test_a_failed_append_ends_the_expiry_of_a_shard(tmp_path: Path) -> None:
    async with coordinator(tmp_path, **{"offsets.retention.minutes": 1}) as state:
        commit(state, 5)
        await state.advance(MINUTE_MS)
        state.append_error = E.KAFKA_STORAGE_ERROR
        await state.groups.offsets.expire()
        assert state.groups.shards.of("g").offsets.of_group("g")
        state.append_error = None
        await state.groups.offsets.expire()
        assert "g" not in state.groups.shards.of("g").groups


@on_loop
async def test_members_that_return_stop_the_retention_time(tmp_path: Path) -> None:
    async with coordinator(tmp_path, **{"offsets.retention.minutes": 1}) as state:
        joined = await stable(state)
        commit(state, joined=joined)
        state.groups.leave("g", [MemberIdentity(member_id=joined.member_id)])
        await state.advance(MINUTE_MS)
        await stable(state)
        await state.groups.offsets.expire()
        assert state.groups.shards.of("g").offsets.of_group("g")
