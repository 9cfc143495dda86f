"""The runtime: appended records are loaded again, and a failed write changes nothing."""

from __future__ import annotations

import asyncio
import errno
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.coordinator_result import (
    CoordinatorRecord,
    CoordinatorResult,
    Timestamp,
)
from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.classic_member import GroupState
from odradek.coordinator.group.group_records import offset_commit_record, offset_commit_tombstone
from odradek.coordinator.group.group_shard import GroupShard
from odradek.coordinator.group.offsets.offset_loading import PUT_PER_SLICE
from odradek.coordinator.group.offsets.offset_store import CommittedOffset
from odradek.coordinator.runtime import COMMIT_TIMEOUT_MS, java_string_hash, partition_for
from odradek.coordinator.shard_lifecycle import RELOAD_MS
from odradek.coordinator.shard_loading import SLICE_RECORDS, ShardLoader
from odradek.errors import ErrorCode, KafkaError
from odradek.log.truncation import truncate_to
from odradek.protocol import record_codec
from odradek.protocol.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from odradek.protocol.messages.group_metadata_key import GroupMetadataKey
from odradek.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from odradek.protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from odradek.protocol.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from odradek.protocol.messages.offset_commit_key import OffsetCommitKey
from odradek.protocol.messages.offset_commit_value import OffsetCommitValue
from odradek.protocol.messages.share_group_metadata_key import ShareGroupMetadataKey
from odradek.protocol.messages.share_group_metadata_value import ShareGroupMetadataValue
from odradek.records.batch import Compression
from odradek.records.record import Record, build_batch
from odradek.result_tasks import wait
from odradek.results import Result
from odradek.slicing import ELEMENTS_PER_SLICE
from tests.coordinator.group.on_disk import OFFSETS, OnDisk, coordinator, now
from tests.coordinator.group.test_consumer_requests import classic_join
from tests.coordinator.group.test_group_coordinator import CLIENT
from tests.helpers.event_loop import on_loop

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\0\0\0\0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1906497762),
        ("polygenelubricants", -(2**31)),
        ("grüße", 98768023),
        ("\U0001f600", 1772899),
    ],
)
def test_hash_has_the_values_of_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_partition_of_the_smallest_hash_is_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


@given(st.text(), st.integers(1, 100))
def test_every_group_has_a_partition(group_id: str, count: int) -> None:
    assert 0 <= partition_for(group_id, count) < count


def offset(number: int, *, group: str = "g", partition: int = 0, **options: Any) -> Any:
    key = OffsetCommitKey(group=group, topic="t", partition=partition)
    return offset_commit_record(key, OffsetCommitValue(offset=number, metadata="", **options))


def committed(state: OnDisk, group: str = "g", partition: int = 0) -> int | None:
    value = state.groups.runtime.shard(0).offsets.get(group, "t", partition)
    return None if value is None else value.offset


def visible(state: OnDisk, group: str = "g", partition: int = 0) -> int | None:
    """Return the committed offset that a read sees."""
    value = state.groups.runtime.shard(0).offsets.committed(group, "t", partition)
    return None if value is None else value.offset


def write(
    state: OnDisk, *records: CoordinatorRecord, seen: list[ErrorCode] | None = None
) -> Result[ErrorCode]:
    """Write to the shard. `seen` takes the codes with which the commit ends."""
    result = CoordinatorResult(list(records), ErrorCode.NONE)
    if seen is not None:

        def note(code: ErrorCode, at: Timestamp) -> CoordinatorResult[None]:
            seen.append(code)
            return CoordinatorResult([], None)

        result.after_commit = note
    return state.groups.runtime.write(0, result, lambda code: code)


def elect(state: OnDisk, leader_epoch: int) -> None:
    """Elect this broker for the partition of the offsets topic."""
    state.leads, state.leader_epoch = True, leader_epoch
    state.groups.leadership_changed(0)


def depose(state: OnDisk) -> None:
    """Elect another broker."""
    state.leads = False
    state.groups.leadership_changed(0)


def refusal(state: OnDisk) -> ErrorCode:
    """Return the error for requests to the shard."""
    with pytest.raises(KafkaError) as error:
        state.groups.runtime.shard(0)
    return error.value.code


def append(state: OnDisk, *records: tuple[bytes | None, bytes | None], **options: Any) -> None:
    """Append raw records to the partition, without the coordinator."""
    batch = build_batch([Record(key, value) for key, value in records], **options)
    state.log().append_as_leader(memoryview(batch), 0, now_ms=state.clock.time_ms())


@on_loop
async def test_restart_restores_all_writes(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        runtime = state.groups.runtime
        runtime.shard(0)
        write(state, offset(1), offset(2, partition=1))
        write(state, offset(3), offset(4, expire_timestamp=99))
        write(state, offset_commit_tombstone("g", "t", 1))
        assert (committed(state), committed(state, partition=1)) == (4, None)
    async with coordinator(tmp_path) as state:
        assert (committed(state), committed(state, partition=1)) == (4, None)
        value = state.groups.runtime.shard(0).offsets.get("g", "t", 0)
        assert value is not None
        assert value.expire_timestamp == 99


@on_loop
async def test_loading_in_small_pieces_restores_the_same_state(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.groups.runtime.shard(0)
        for number in range(100):
            write(state, offset(number, group=f"g{number % 7}"))
    async with coordinator(tmp_path, start=False) as state:
        state.groups.runtime._loader.piece_bytes = 64
        state.groups.start()
        with pytest.raises(KafkaError) as error:
            state.groups.runtime.shard(0)
        assert error.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await state.groups.runtime.loads_done()
        assert [committed(state, f"g{n}") for n in range(7)] == [98, 99, 93, 94, 95, 96, 97]


@on_loop
async def test_records_before_the_log_start_are_not_loaded(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.groups.runtime.shard(0)
        write(state, offset(1), offset(2, partition=1))
        log = state.log()
        log.advance_high_watermark(log.log_end_offset)
        log.delete_records(1)
    async with coordinator(tmp_path) as state:
        assert (committed(state), committed(state, partition=1)) == (None, 2)


@on_loop
async def test_append_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.groups.runtime.shard(0)
        state.append_error = ErrorCode.KAFKA_STORAGE_ERROR
        seen: list[ErrorCode] = []
        failed = write(state, offset(1), seen=seen)
        assert failed.get() is ErrorCode.NOT_COORDINATOR
        assert seen == [ErrorCode.NOT_COORDINATOR]
        assert state.groups.runtime.shard(0).groups == {}
        assert committed(state) is None
        assert state.log().log_end_offset == 0
        state.append_error = None
        assert write(state, offset(2)).get() is ErrorCode.NONE
        assert committed(state) == 2


@on_loop
async def test_failed_heartbeat_of_an_upgrade_leaves_the_classic_members_waiting(
    tmp_path: Path,
) -> None:
    """The append fails. The requests that wait for the classic group keep waiting."""

    async with coordinator(tmp_path) as state:
        first = now(state.groups.join(classic_join(""), CLIENT, 9))
        waiting = state.groups.join(classic_join(first.member_id), CLIENT, 9)
        state.append_error = ErrorCode.KAFKA_STORAGE_ERROR
        request = ConsumerGroupHeartbeatRequest(
            "g",
            "new",
            0,
            topic_partitions=[],
            subscribed_topic_names=["t"],
            rebalance_timeout_ms=10_000,
        )
        refused = state.groups.consumers.heartbeat(request, CLIENT, 1).get()
        assert refused.error_code == ErrorCode.NOT_COORDINATOR
        assert not waiting.done
        state.append_error = None
        accepted = state.groups.consumers.heartbeat(request, CLIENT, 1).get()
        assert accepted.error_code == ErrorCode.NONE
        assert waiting.get().error_code == ErrorCode.REBALANCE_IN_PROGRESS


@on_loop
async def test_write_that_waits_for_the_disk_ends_with_the_flush(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        state.groups.runtime.shard(0)
        seen: list[ErrorCode] = []
        waiting = write(state, offset(1), seen=seen)
        assert not waiting.done
        assert committed(state) == 1, "the latest state"
        state.flushes[0].set_result(None)
        assert await wait(waiting) is ErrorCode.NONE
        assert seen == [ErrorCode.NONE]


@on_loop
async def test_write_that_is_not_committed_in_time_gets_an_error_and_stays(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        runtime = state.groups.runtime
        runtime.shard(0)
        state.flushes = []
        seen: list[ErrorCode] = []
        first = write(state, offset(1), seen=seen)
        await state.advance(COMMIT_TIMEOUT_MS - 1)
        second = write(state, offset(2))
        assert not first.done
        await state.advance(1)
        assert first.get() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not second.done
        assert committed(state) == 2, "the record is in the log, so it stays in the state"
        assert visible(state) is None
        state.flushes[0].set_result(None)
        await asyncio.sleep(0)
        assert visible(state) == 1
        assert seen == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
        await state.advance(COMMIT_TIMEOUT_MS)
        assert second.get() is ErrorCode.COORDINATOR_NOT_AVAILABLE
        state.flushes[1].set_result(None)
        await asyncio.sleep(0)
        assert visible(state) == 2
    async with coordinator(tmp_path) as state:
        assert committed(state) == 2


@on_loop
async def test_write_that_failed_stays_while_this_broker_leads(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        runtime = state.groups.runtime
        shard = runtime.shard(0)
        waiting = write(state, offset(1))
        behind = write(state)
        state.flushes[0].set_exception(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
        assert await wait(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert runtime.shard(0) is shard
        assert (committed(state), visible(state), behind.done) == (1, None, False)
        later = write(state, offset(2))
        state.flushes[1].set_result(None)
        assert await wait(later) is ErrorCode.NONE
        assert behind.get() is ErrorCode.NONE
        assert visible(state) == 2, "the high watermark has passed both"


@on_loop
async def test_shard_is_dropped_when_this_broker_no_longer_leads(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        runtime = state.groups.runtime
        runtime.shard(0)
        state.flushes = []
        waiting = write(state, offset(1))
        behind = write(state, offset(2))
        state.leads = False
        state.flushes[0].set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        assert await wait(waiting) is ErrorCode.NOT_COORDINATOR
        assert behind.get() is ErrorCode.NOT_COORDINATOR
        assert refusal(state) is ErrorCode.NOT_COORDINATOR
        elect(state, 2)
        assert refusal(state) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await runtime.loads_done()
        assert committed(state) == 2, "loaded from the log again"


@on_loop
async def test_new_leader_epoch_loads_the_shard_from_the_log(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        runtime = state.groups.runtime
        runtime.shard(0)
        write(state, offset(1))
        state.flushes = []
        waiting = write(state, offset(2))
        truncate_to(state.log(), 1)  # another leader has not got it
        elect(state, 1)
        assert waiting.get() is ErrorCode.NOT_COORDINATOR
        assert refusal(state) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await runtime.loads_done()
        assert (committed(state), visible(state)) == (1, 1)
        state.flushes[0].set_result(None)
        await asyncio.sleep(0)
        assert committed(state) == 1, "the end of an older epoch changes nothing"


@on_loop
async def test_metadata_of_the_same_leader_epoch_keeps_the_shard(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        shard = state.groups.runtime.shard(0)
        state.flushes = []
        waiting = write(state, offset(1))
        elect(state, 0)
        assert state.groups.runtime.shard(0) is shard
        state.flushes[0].set_result(None)
        assert await wait(waiting) is ErrorCode.NONE


@on_loop
async def test_damaged_log_is_read_again_in_the_next_leader_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinator(tmp_path) as state:
        runtime = state.groups.runtime
        write(state, offset(1))
        with monkeypatch.context() as patch:
            patch.setattr(runtime._loader, "load", failing(ValueError("a damaged batch")))
            elect(state, 1)
            await runtime.loads_done()
        for _ in range(2):
            assert refusal(state) is ErrorCode.NOT_COORDINATOR
            state.groups.leadership_changed(0)
        elect(state, 2)
        await runtime.loads_done()
        assert committed(state) == 1


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.KAFKA_STORAGE_ERROR),
        OSError(errno.EMFILE, "Too many open files"),
        RuntimeError("a defect"),
    ],
    ids=["storage", "descriptors", "unexpected"],
)
@on_loop
async def test_log_that_cannot_be_read_now_is_loaded_again_without_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with coordinator(tmp_path) as state:
        runtime = state.groups.runtime
        write(state, offset(1))
        with monkeypatch.context() as patch:
            patch.setattr(runtime._loader, "load", failing(error))
            elect(state, 1)
            await runtime.loads_done()
        assert refusal(state) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await state.advance(RELOAD_MS)
        await runtime.loads_done()
        assert committed(state) == 1


def failing(error: Exception) -> Any:
    async def load(*_: object) -> int:
        raise error

    return load


@on_loop
async def test_shard_serves_when_the_high_watermark_has_reached_the_end_that_was_loaded(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as state:
        write(state, offset(1), offset(2))
        state.awaited = []
        elect(state, 1)
        await state.groups.runtime.loads_done()
        assert refusal(state) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        ((end, reached),) = state.awaited
        assert end == 2
        reached(2)
        assert committed(state) == 2
        elect(state, 2)
        await state.groups.runtime.loads_done()
        reached(2)
        assert refusal(state) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "of an earlier epoch"


@on_loop
async def test_append_after_the_leader_epoch_has_ended_is_refused(tmp_path: Path) -> None:
    """The partition learns its new epoch before the coordinator."""
    async with coordinator(tmp_path) as state:
        state.leader_epoch = 1
        assert write(state, offset(1)).get() is ErrorCode.NOT_COORDINATOR
        assert state.log().log_end_offset == 0
        with pytest.raises(KafkaError) as error:
            state.groups.offsets.complete_transaction(0, 7, 0, 0, True)
        assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        state.groups.leadership_changed(0)
        assert write(state, offset(2)).get() is ErrorCode.NONE


@on_loop
async def test_write_of_a_dropped_shard_does_not_continue_in_the_next_one(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        continued: list[ErrorCode] = []

        def continue_(code: ErrorCode, at: Timestamp) -> CoordinatorResult[None]:
            continued.append(code)
            return CoordinatorResult([offset(9)], None)

        result = CoordinatorResult([offset(1)], ErrorCode.NONE, after_commit=continue_)
        waiting = state.groups.runtime.write(0, result, lambda code: code)
        elect(state, 1)
        await state.groups.runtime.loads_done()
        assert waiting.get() is ErrorCode.NOT_COORDINATOR
        assert continued == [ErrorCode.NOT_COORDINATOR]
        await state.advance(COMMIT_TIMEOUT_MS)
        assert committed(state) == 1


@on_loop
async def test_many_groups_begin_and_end_with_their_shard_in_time_slices(tmp_path: Path) -> None:
    count = 5 * ELEMENTS_PER_SLICE
    async with coordinator(tmp_path) as state:
        write(state, *(offset(1, group=f"g{number}") for number in range(count)))
        shard = state.groups.runtime.shard(0)
        depose(state)
        ended = [each.state for each in shard.groups.values()].count(GroupState.DEAD)
        assert ended == ELEMENTS_PER_SLICE
        elect(state, 1)
        await state.groups.runtime.loads_done()
        assert refusal(state) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        for _ in range(20):
            await asyncio.sleep(0)
        assert [each.state for each in shard.groups.values()].count(GroupState.DEAD) == count
        assert len(state.groups.runtime.shard(0).groups) == count


def group_record(group_id: str, members: int) -> CoordinatorRecord:
    """Return the record of a classic group."""
    metadata = [
        MemberMetadata(f"m{number}", None, "c", "h", 10_000, 10_000, SUBSCRIPTION, b"x")
        for number in range(members)
    ]
    value = GroupMetadataValue("consumer", 1, "range", "m0", 0, metadata)
    return CoordinatorRecord(GroupMetadataKey(group_id), value, 3)


@on_loop
async def test_shards_that_end_or_begin_together_share_each_time_slice(tmp_path: Path) -> None:
    shards, groups, members = 10, 30, 9
    all_elements = shards * groups * (1 + members)
    with pytest.MonkeyPatch.context() as patches:
        visited = visits(patches)
        async with coordinator(tmp_path, partitions=shards) as state:
            runtime = state.groups.runtime
            for partition in range(shards):
                for number in range(groups):
                    record = group_record(f"g{number}", members)
                    runtime.write(partition, CoordinatorResult([record], None), lambda code: None)
            runtime.unload_all()
            assert await longest_slice(visited, all_elements) <= ELEMENTS_PER_SLICE
            state.awaited, state.leader_epoch = [], 1
            runtime.follow_all(shards)
            await runtime.loads_done()
            for end, reached in state.awaited:
                reached(end)
            assert await longest_slice(visited, all_elements) <= ELEMENTS_PER_SLICE
            assert len(list(runtime.shards())) == shards


def visits(patches: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the elements of each group that begins or ends."""
    visited: list[int] = []

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(group: ClassicGroup, *args: Any) -> Any:
            visited.append(1 + len(group.members))
            return function(group, *args)

        return counted

    patches.setattr(ClassicGroup, "loaded", counting(ClassicGroup.loaded))
    patches.setattr(ClassicGroup, "unload", counting(ClassicGroup.unload))
    return visited


async def longest_slice(visited: list[int], expected: int) -> int:
    """Let the loop run until all elements are visited. Return the most of one iteration."""
    total = longest = 0
    while total < expected:
        assert visited or total, "nothing is visited"
        longest = max(longest, sum(visited))
        total += sum(visited)
        visited.clear()
        await asyncio.sleep(0)
    return longest


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2), st.integers(0, 99)),
        st.tuples(st.just("remove"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("commit"), st.integers(1, 3), st.just(0)),
    ),
    max_size=30,
)


@given(steps)
def test_committed_view_is_the_state_of_the_committed_records(
    history: list[tuple[str, int, int]],
) -> None:
    """Compare with a shard that replays only the committed records."""
    latest, model = GroupShard(0), GroupShard(0)
    records: list[Any] = []
    high_watermark = 0
    for kind, number, value in history:
        if kind == "commit":
            for at in range(high_watermark, min(high_watermark + number, len(records))):
                model.replay(at, records[at].key, records[at].value)
                latest.commit(at)
                high_watermark = at + 1
        else:
            record = offset(value, partition=number)
            if kind == "remove":
                record = offset_commit_tombstone("g", "t", number)
            latest.keep(len(records), record.key)
            latest.replay(len(records), record.key, record.value)
            records.append(record)
        assert latest.offsets.committed_of_group("g") == model.offsets.of_group("g")
        for index in range(3):
            expected = model.offsets.get("g", "t", index)
            assert latest.offsets.committed("g", "t", index) == expected
        assert [group.group_id for group in latest.committed_groups()] == list(model.groups)


@on_loop
async def test_failed_flush_of_a_recreated_topic_is_ignored(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        state.flushes = []
        runtime = state.groups.runtime
        runtime.shard(0)
        waiting = write(state, offset(1))
        runtime.unload_all()
        assert waiting.get() is ErrorCode.NOT_COORDINATOR
        state.manager.delete(OFFSETS)
        state.manager.create(OFFSETS, state.image.topics_by_name["t"].topic_id)
        runtime.follow(0)
        state.flushes[0].set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for _ in range(3):
            await asyncio.sleep(0)
        assert runtime.shard(0).groups == {}


@on_loop
async def test_missing_partition_has_no_coordinator(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as state:
        with pytest.raises(KafkaError) as error:
            state.groups.runtime.shard(7)
        assert error.value.code is ErrorCode.NOT_COORDINATOR


def test_unreadable_records_are_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = offset(5)
    key = record_codec.encode_key(good.key)
    value = record_codec.encode_value(good.value, 3)
    later = record_codec.encode_key(ShareGroupMetadataKey(group_id="new"))
    metadata = record_codec.encode_value(ShareGroupMetadataValue(epoch=1), 0)

    async def run() -> None:
        async with coordinator(tmp_path) as state:
            append(
                state,
                (None, b"no key"),
                (b"\x7f\xffunknown type", b""),
                (b"\x00", b"short"),
                (key[:5], value),
                (key, value[:4]),
                (later, metadata),
                (key, value),
            )
        async with coordinator(tmp_path) as state:
            assert committed(state) == 5

    asyncio.run(run())
    assert "a record without a key: skipped, first at offset 0" in caplog.text
    assert "group records have no type 32767: skipped" in caplog.text
    assert "ShareGroupMetadataKey records are skipped, first at offset 5" in caplog.text


def test_commits_of_old_brokers_are_loaded(tmp_path: Path) -> None:
    key = record_codec.encode_key(LegacyOffsetCommitKey(group="g", topic="t", partition=0))
    value = record_codec.encode_value(LegacyOffsetCommitValue(offset=3, metadata="old"), 0)

    async def run() -> None:
        async with coordinator(tmp_path) as state:
            append(state, (key, value))
        async with coordinator(tmp_path) as state:
            assert committed(state) == 3
            append(state, (key, None))
        async with coordinator(tmp_path) as state:
            assert committed(state) is None

    asyncio.run(run())


def load(shard: GroupShard, piece: bytes, first: int = 0) -> int:
    """Load one piece of a log; return the offset after it."""

    async def run() -> int:
        with ThreadPoolExecutor(1) as executor:
            return await ShardLoader("group", executor, 1).load_piece(shard, piece, first)

    return asyncio.run(run())


def replayed(shard: GroupShard, *, base_offset: int, **flags: Any) -> None:
    """Load one commit of offset 9, in a batch with these flags, into the shard."""
    record = offset(9)
    stored = Record(record_codec.encode_key(record.key), record_codec.encode_value(record.value, 3))
    flags = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, **flags}
    batch = build_batch([stored], base_offset=base_offset, **flags)
    assert load(shard, bytes(batch)) == base_offset + 1


def marked(shard: GroupShard, kind: int, *, producer_id: int = 1) -> None:
    """Load the marker of a transaction into the shard: 0 aborts, 1 commits."""
    key = struct.pack(">hh", 0, kind)
    batch = build_batch(
        [Record(key, struct.pack(">hi", 0, 0))],
        base_offset=50,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    load(shard, bytes(batch))


def test_loaded_offsets_of_transactions_are_committed_by_their_marker() -> None:
    shard = GroupShard(0)
    replayed(shard, base_offset=7, transactional=True)
    assert shard.offsets.get("g", "t", 0) is None
    assert shard.offsets.is_pending("g", "t", 0)
    marked(shard, 1, producer_id=2)
    assert shard.offsets.is_pending("g", "t", 0)
    marked(shard, 1)
    value = shard.offsets.get("g", "t", 0)
    assert value is not None
    assert (value.offset, value.record_offset) == (9, 7)
    assert not shard.offsets.is_pending("g", "t", 0)


def test_loaded_offsets_of_an_aborted_transaction_are_dropped() -> None:
    shard = GroupShard(0)
    replayed(shard, base_offset=7, transactional=True)
    marked(shard, 0)
    assert shard.offsets.get("g", "t", 0) is None
    assert not shard.offsets.has_open_transactions("g")


def test_control_batches_other_than_markers_are_ignored() -> None:
    shard = GroupShard(0)
    replayed(shard, base_offset=7, control=True)
    assert shard.groups == {}


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@on_loop
async def test_batches_are_compressed_as_configured(tmp_path: Path, codec: int) -> None:
    config: dict[str, object] = {"offsets.topic.compression.codec": codec}
    async with coordinator(tmp_path, **config) as state:
        state.groups.runtime.shard(0)
        write(state, *(offset(n, partition=n) for n in range(50)))
    async with coordinator(tmp_path) as state:
        assert [committed(state, partition=n) for n in range(50)] == list(range(50))


names = st.sampled_from(["g", "group", "grüße", "", "x" * 200])


@st.composite
def stored_records(draw: st.DrawFn) -> Record:
    """Draw a record that may be in ``__consumer_offsets``, ordinary or not."""
    key = OffsetCommitKey(draw(names), draw(names), draw(st.integers(0, 300)))
    options = {"commit_timestamp": draw(st.integers(-1, 2**40)), "offset": draw(st.integers(0, 9))}
    value = OffsetCommitValue(metadata=draw(st.sampled_from(["", "note", "ü"])), **options)
    kind = draw(st.sampled_from(["plain"] * 5 + ["gone", "old", "headers", "legacy", "group", "?"]))
    key_bytes, value_bytes = record_codec.encode_key(key), record_codec.encode_value(value, 3)
    if kind == "gone":
        return Record(key_bytes, None)
    if kind == "old":
        return Record(key_bytes, record_codec.encode_value(value, 1))
    if kind == "headers":
        return Record(key_bytes, value_bytes, headers=[("h", b"1")])
    if kind == "legacy":
        legacy = LegacyOffsetCommitKey(key.group, key.topic, key.partition)
        old = LegacyOffsetCommitValue(metadata="", **options)
        return Record(record_codec.encode_key(legacy), record_codec.encode_value(old, 0))
    if kind == "group":
        return Record(record_codec.encode_key(GroupMetadataKey(key.group)), None)
    if kind == "?":
        return Record(key_bytes[: draw(st.integers(0, 9))], value_bytes)
    return Record(key_bytes, value_bytes)


batches = st.lists(
    st.tuples(
        st.lists(stored_records(), min_size=1, max_size=5),
        st.sampled_from([{}, {}, {}, {"compression": 1}, {"transactional": True}]),
    ),
    min_size=1,
    max_size=8,
)


class OneByOne(GroupShard):
    """A shard without the fast path."""

    bulk = None  # type: ignore[assignment]


class Counting(GroupShard):
    """A shard that records the threads of its changes, and their number between two checks."""

    __slots__ = ("changes", "threads")

    def __init__(self) -> None:
        super().__init__(0)
        self.changes = 0
        self.threads: set[int] = set()

    def replay(self, offset: int, key: Any, value: Any) -> None:
        super().replay(offset, key, value)
        self.changes += 1
        self.threads.add(threading.get_ident())

    def put_offset(self, group: str, topic: str, partition: int, value: CommittedOffset) -> None:
        super().put_offset(group, topic, partition, value)
        self.changes += 1
        self.threads.add(threading.get_ident())


class CountingOneByOne(Counting):
    bulk = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "options", "per_slice"),
    [
        (Counting, {}, PUT_PER_SLICE),
        (CountingOneByOne, {}, SLICE_RECORDS),
        (Counting, {"compression": "lz4"}, SLICE_RECORDS),
    ],
)
def test_event_loop_is_free_after_each_slice_of_a_load(
    kind: type[Counting], options: dict[str, Any], per_slice: int
) -> None:
    """Decoding and replay run on the event loop. In a thread they would hold the interpreter
    lock."""
    count = 3_000
    stored = []
    for number in range(count):
        record = offset(number, group=f"g{number}")
        value = record_codec.encode_value(record.value, 3)
        stored.append(Record(record_codec.encode_key(record.key), value))
    piece = b"".join(
        build_batch(stored[first : first + 100], base_offset=first, **options)
        for first in range(0, count, 100)
    )
    shard = kind()
    steps: list[int] = []

    async def watch() -> None:
        seen = 0
        while True:
            steps.append(shard.changes - seen)
            seen = shard.changes
            await asyncio.sleep(0)

    async def run() -> int:
        watching = asyncio.ensure_future(watch())
        with ThreadPoolExecutor(1) as executor:
            end = await ShardLoader("group", executor, 1).load_piece(shard, piece, 0)
        watching.cancel()
        return end

    assert asyncio.run(run()) == count
    assert shard.changes == count
    assert shard.threads == {threading.get_ident()}
    assert max(steps) <= per_slice


@given(batches, st.integers(0, 12))
def test_bulk_loading_restores_the_same_state_as_loading_one_by_one(
    history: list[tuple[list[Record], dict[str, Any]]], first: int
) -> None:
    piece = b""
    offset = 0
    for records, flags in history:
        if flags.get("transactional"):
            flags = {"transactional": True, "producer_id": 1, "producer_epoch": 0}
        if "compression" in flags:
            flags = {"compression": Compression.GZIP}
        piece += build_batch(records, base_offset=offset, timestamp_ms=5, **flags)
        offset += len(records)
    shards = [kind(0) for kind in (GroupShard, OneByOne)]
    for shard in shards:
        assert load(shard, piece, first) == offset
    fast, slow = shards
    assert set(fast.groups) == set(slow.groups)
    for group in fast.groups:
        assert fast.offsets.of_group(group) == slow.offsets.of_group(group)
    assert fast.offsets._pending == slow.offsets._pending
