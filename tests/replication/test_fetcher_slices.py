"""Time slices of a fetcher: large responses, many partitions, and changes between two slices."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.log.truncation import LogTruncations
from odradek.log.unified_log import UnifiedLog
from odradek.replication import fetch_session_handler, replica_fetcher
from odradek.replication.fetch_session_handler import (
    LONG_REQUEST_MIN,
    PARTITIONS_A_REQUEST_MAX,
)
from odradek.replication.followed_replica import FollowedReplica
from odradek.replication.leader_offsets import LOOKUPS_A_REQUEST_MAX
from odradek.replication.replica_fetcher import (
    FLUSH_COST,
    RETRY_MS,
    SLICE_COST_MAX,
    TRUNCATION_COST,
)
from tests.helpers.time_slices import count_slices
from tests.replication.scripted_leader import (
    LIST_OFFSETS_VERSION,
    SETTINGS,
    Follower,
    append,
    batch_at,
    batches,
    bytes_of,
    diverging,
    failed,
    list_offsets,
    nothing,
    records,
    run_follower,
    until,
)


def test_large_response_is_applied_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = count_slices(monkeypatch)

    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        data = batches(0, 5_500)
        it.in_sync.answer(records(0, data, high_watermark=5_500))
        await until(lambda: bool(it.in_sync.asked))
        assert bytes_of(partition.log) == data
        assert partition.log.high_watermark == 5_500
        assert len(slices) >= 2

    run_follower(tmp_path, test)


@pytest.mark.parametrize("change", ["unfollow", "new epoch", "stop"])
def test_change_between_two_slices_ends_the_appends(tmp_path: Path, change: str) -> None:
    async def test(it: Follower) -> None:
        partition, other = it.partition(0), it.partition(1)
        it.follow_in_sync(partition, other)
        it.catch_up.answer(session_id=0)
        it.in_sync.answer(records(0, batches(0, 3_500)))
        appended = partition.log.log_end_offset
        assert 0 < appended < 3_500
        if change == "unfollow":
            it.fetchers.unfollow([partition.topic_partition])
        elif change == "stop":
            await it.fetchers.stop()
        else:
            it.follow(partition, epoch=6)
        for _ in range(20):
            await asyncio.sleep(0)
        assert partition.log.log_end_offset == appended
        if change == "stop":
            assert it.timers.armed == 0
        if change == "new epoch":
            (fetched,) = it.catch_up.partitions
            assert (fetched.fetch_offset, fetched.current_leader_epoch) == (appended, 6)

    run_follower(tmp_path, test)


def test_partition_that_was_not_requested_costs_the_connection_in_a_later_slice(
    tmp_path: Path,
) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        it.catch_up.answer(session_id=0)
        channel = it.in_sync
        channel.answer(records(0, batches(0, 3_500)), nothing(7))
        assert 0 < partition.log.log_end_offset < 3_500
        await until(lambda: channel.closed)
        assert partition.log.log_end_offset == 3_500
        it.timers.advance(RETRY_MS)
        assert it.in_sync is not channel
        assert (it.in_sync.fetch.session_id, it.in_sync.fetch.session_epoch) == (7, 0)
        assert [each.fetch_offset for each in it.in_sync.partitions] == [3_500]

    run_follower(tmp_path, test)


def test_replicas_of_a_stopped_follower_are_removed_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher, "REMOVED_PER_SLICE", 2)
    slices = count_slices(monkeypatch)

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(5)]
        it.follow_in_sync(*partitions)
        await until(lambda: "in-sync" in [each.purpose for each in it.channels])
        slices.clear()
        stop = asyncio.ensure_future(it.fetchers.stop())
        await until(lambda: bool(slices))
        assert all(each.closed for each in it.channels)
        await stop
        assert len(slices) == 2
        assert it.timers.armed == 0

    run_follower(tmp_path, test)


def test_replicas_of_a_stopped_follower_are_freed_in_the_slices_that_remove_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise 10,000 of them are freed at the end, in one slice."""
    monkeypatch.setattr(replica_fetcher, "REMOVED_PER_SLICE", 2)
    slices = count_slices(monkeypatch)

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(5)]
        before = alive()
        it.follow_in_sync(*partitions)
        await until(lambda: "in-sync" in [each.purpose for each in it.channels])
        assert alive() - before == 5
        slices.clear()
        stop = asyncio.ensure_future(it.fetchers.stop())
        await until(lambda: bool(slices))
        assert alive() - before == 3
        await stop
        assert alive() == before

    run_follower(tmp_path, test)


@pytest.mark.parametrize("failed", [False, True])
def test_flush_that_ends_while_replicas_are_removed_begins_no_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    monkeypatch.setattr(replica_fetcher, "REMOVED_PER_SLICE", 1)
    slices = count_slices(monkeypatch)

    def fail(_: UnifiedLog) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    if failed:
        monkeypatch.setattr(UnifiedLog, "flush", fail)

    async def test(it: Follower) -> None:
        first, flushed = it.partition(0), it.partition(1)
        append(flushed.log, [(2, 4)])
        it.follow(first, flushed)
        await until(lambda: bool(it.executor.held))
        slices.clear()
        stop = asyncio.ensure_future(it.fetchers.stop())
        await until(lambda: bool(slices))
        channels = len(it.channels)
        it.release()
        await stop
        assert len(it.channels) == channels
        assert all(each.closed for each in it.channels)
        assert it.timers.armed == 0

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


def test_response_that_a_stop_interrupts_backs_no_replica_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The replicas that it has paused are removed in later slices."""
    monkeypatch.setattr(replica_fetcher, "REMOVED_PER_SLICE", 1)
    monkeypatch.setattr(replica_fetcher, "SLICE_COST_MAX", 1)

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(5)]
        append(partitions[4].log, [(2, 4)])
        it.follow_in_sync(*partitions)
        await until(lambda: "in-sync" in [each.purpose for each in it.channels])
        it.in_sync.answer(diverging(4, 1, 2), nothing(3))
        caplog.clear()
        await it.fetchers.stop()
        assert it.timers.armed == 0
        assert not caplog.records

    run_follower(tmp_path, test)


def test_stopped_follower_looks_up_no_offsets_after_the_slice(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        lost, other = it.partition(0), it.partition(1)
        it.follow_in_sync(lost, other)
        it.in_sync.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE), records(1, batches(0, 3_500)))
        await it.fetchers.stop()
        for _ in range(20):
            await asyncio.sleep(0)
        assert all(each.closed for each in it.channels)

    run_follower(tmp_path, test)


def test_appends_have_a_limit_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_fetcher, "RUN_BYTES_MAX", 1_000)
    sizes: list[int] = []
    append_as_follower = UnifiedLog.append_as_follower

    def noted(log: UnifiedLog, data: memoryview, *args: Any, **options: Any) -> Any:
        sizes.append(len(data))
        return append_as_follower(log, data, *args, **options)

    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        monkeypatch.setattr(UnifiedLog, "append_as_follower", noted)
        data = batches(0, 100)
        it.in_sync.answer(records(0, data))
        assert bytes_of(partition.log) == data
        assert max(sizes) <= 1_000

    run_follower(tmp_path, test)


def test_append_rolls_few_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A roll takes more than a millisecond, and the clock ends a slice between two appends only."""
    appended: list[int] = []
    append_as_follower = UnifiedLog.append_as_follower

    def noted(log: UnifiedLog, *arguments: Any, **named: Any) -> Any:
        before = len(log.segments)
        info = append_as_follower(log, *arguments, **named)
        appended.append(len(log.segments) - before)
        return info

    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        monkeypatch.setattr(UnifiedLog, "append_as_follower", noted)
        data = batches(0, 100)
        it.in_sync.answer(records(0, data))
        await until(lambda: partition.log.log_end_offset == 100)
        assert bytes_of(partition.log) == data
        assert sum(appended) > 10
        assert max(appended) == 1

    run_follower(tmp_path, test, config=LogConfig(segment_bytes=5 * len(batches(0, 1))))


def test_many_partitions_of_a_response_are_visited_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_session_handler, "PARTITIONS_A_REQUEST_MAX", 250)
    slices = count_slices(monkeypatch)

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(250)]
        it.follow_in_sync(*partitions)
        await until(lambda: "in-sync" in [each.purpose for each in it.channels])
        for _ in range(5):
            await asyncio.sleep(0)  # the fetches of the other session are freed
        slices.clear()
        it.in_sync.answer(*(nothing(number, high_watermark=0) for number in range(250)))
        await until(lambda: bool(it.in_sync.asked))
        assert len(slices) == 2, "one after the decoding, and one after 200 partitions"

    run_follower(tmp_path, test)


def test_request_after_a_response_with_many_partitions_has_its_own_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher, "PARTITIONS_WITH_DECODING_MAX", 1)

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(2)]
        it.follow_in_sync(*partitions)
        await until(lambda: "in-sync" in [each.purpose for each in it.channels])
        channel = it.in_sync
        channel.answer(*(records(number, batches(0, 1)) for number in range(2)))
        assert [each.log.log_end_offset for each in partitions] == [0, 0]
        ends: list[list[int]] = []
        for _ in range(20):
            ends.append([each.log.log_end_offset for each in partitions])
            if channel.asked:
                break
            await asyncio.sleep(0)
        assert [each.fetch_offset for each in channel.partitions] == [1, 1]
        assert ends[-2] == [1, 1], "the request follows in a later slice than the appends"

    run_follower(tmp_path, test)


def test_backoffs_of_many_replicas_end_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher, "WOKEN_PER_SLICE", 2)

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(5)]
        it.follow(*partitions)
        it.catch_up.answer(*(failed(each, ErrorCode.UNKNOWN_TOPIC_ID) for each in range(5)))
        assert it.catch_up.fetch.session_epoch == -1, "none is fetched"
        it.catch_up.answer(session_id=0)
        it.fetchers.unfollow([partitions[1].topic_partition])
        named: list[list[int]] = []
        it.timers.advance(1_000)
        while it.catch_up.asked:
            named.append([each.partition for each in it.catch_up.partitions])
            await asyncio.sleep(0)
            it.catch_up.answer()
            if not named[-1]:
                break
        assert named == [[0, 2], [3, 4], []]

    run_follower(tmp_path, test)


def test_clock_ends_the_slice_of_backoffs_that_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher, "SLICE_MS", 0)

    async def test(it: Follower) -> None:
        it.follow(*(it.partition(number) for number in range(3)))
        it.catch_up.answer(*(failed(each, ErrorCode.UNKNOWN_TOPIC_ID) for each in range(3)))
        it.catch_up.answer(session_id=0)
        it.timers.advance(1_000)
        assert [each.partition for each in it.catch_up.partitions] == [0]

    run_follower(tmp_path, test)


def test_last_fetches_of_an_idle_fetcher_are_freed_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_session_handler, "ELEMENTS_PER_SLICE", 2)
    slices = count_slices(monkeypatch)

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(5)]
        before = alive()
        it.follow_in_sync(*partitions)
        await until(lambda: "in-sync" in [each.purpose for each in it.channels])
        slices.clear()
        it.fetchers.unfollow([each.topic_partition for each in partitions])
        assert all(each.closed for each in it.channels)
        assert alive() - before == 3
        await until(lambda: alive() == before)
        assert len(slices) >= 2

    run_follower(tmp_path, test)


def alive() -> int:
    gc.collect()
    return sum(isinstance(each, FollowedReplica) for each in gc.get_objects())


def test_slow_appends_end_the_time_slice_before_its_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example the first append to each log, which creates its directory and files."""
    slices = count_slices(monkeypatch)

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(8)]
        it.follow_in_sync(*partitions)
        await until(lambda: "in-sync" in [each.purpose for each in it.channels])
        slow_appends(monkeypatch, it)
        slices.clear()
        it.in_sync.answer(*(records(each, batches(0, 1)) for each in range(8)))
        await until(lambda: bool(it.in_sync.asked))
        assert {each.log.log_end_offset for each in partitions} == {1}
        assert len(slices) == 3

    run_follower(tmp_path, test)


def test_slow_runs_of_one_partition_end_the_time_slice_before_its_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example runs that roll the segment."""
    slices = count_slices(monkeypatch)
    monkeypatch.setattr(replica_fetcher, "RUN_BYTES_MAX", len(batches(0, 1)))

    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        slow_appends(monkeypatch, it)
        slices.clear()
        it.in_sync.answer(records(0, batches(0, 8)))
        await until(lambda: bool(it.in_sync.asked))
        assert partition.log.log_end_offset == 8
        assert len(slices) == 3

    run_follower(tmp_path, test)


def slow_appends(monkeypatch: pytest.MonkeyPatch, it: Follower) -> None:
    """Let each append of the follower take a millisecond."""
    append_as_follower = UnifiedLog.append_as_follower

    def slow(log: UnifiedLog, *arguments: Any, **named: Any) -> Any:
        it.clock.advance(1)
        return append_as_follower(log, *arguments, **named)

    monkeypatch.setattr(UnifiedLog, "append_as_follower", slow)


def test_response_of_the_other_connection_between_two_slices_ends_the_appends(
    tmp_path: Path,
) -> None:
    """A replica that moves may get the same records twice. They are no reason to back off."""

    async def test(it: Follower) -> None:
        first, moving = it.partition(0), it.partition(1)
        it.follow_in_sync(first)
        it.catch_up.answer(session_id=0)
        it.follow(moving)
        it.catch_up.answer(nothing(1))
        data = batches(0, 3_500)
        it.catch_up.answer(records(1, data))
        appended = moving.log.log_end_offset
        assert 0 < appended < 3_500
        it.in_sync.answer()
        assert it.in_sync.partitions[0].fetch_offset == appended
        it.in_sync.answer(records(1, batches(appended, 10)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert moving.log.log_end_offset == appended + 10
        assert it.in_sync.partitions[0].fetch_offset == appended + 10
        it.in_sync.answer()
        assert it.in_sync.forgotten == []

    run_follower(tmp_path, test)


def test_diverging_partition_that_is_unfollowed_between_two_slices_is_not_truncated(
    tmp_path: Path,
) -> None:
    async def test(it: Follower) -> None:
        diverged, other = it.partition(0), it.partition(1)
        append(diverged.log, [(2, 4)])
        it.follow(diverged, other)
        it.catch_up.answer(diverging(0, 2, 1), records(1, batches(0, 3_500)))
        it.fetchers.unfollow([diverged.topic_partition])
        await until(lambda: other.log.log_end_offset == 3_500)
        assert not diverged.log.is_truncating
        assert diverged.log.log_end_offset == 4

    run_follower(tmp_path, test)


def test_large_batch_is_appended_whole(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        data = batches(0, 2, value=os.urandom(replica_fetcher.RUN_BYTES_MAX + 1))
        it.in_sync.answer(records(0, data))
        await until(lambda: bool(it.in_sync.asked))
        assert bytes_of(partition.log) == data

    run_follower(tmp_path, test, config=LogConfig(max_message_bytes=10**8))


def test_partition_that_is_unfollowed_between_two_slices_is_not_emptied(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        inside, other = it.partition(0), it.partition(1)
        append(inside.log, [(2, 4)])
        it.follow(inside, other)
        it.catch_up.answer(records(0, batch_at(2, 4), log_start=4), records(1, batches(0, 3_500)))
        it.fetchers.unfollow([inside.topic_partition])
        await until(lambda: other.log.log_end_offset == 3_500)
        assert not inside.log.is_truncating
        assert inside.log.log_end_offset == 4

    run_follower(tmp_path, test)


def test_request_names_a_limited_number_of_partitions(tmp_path: Path) -> None:
    """The others follow in the next requests, for which the leader does not wait."""
    count = 2 * PARTITIONS_A_REQUEST_MAX + 1

    async def test(it: Follower) -> None:
        it.follow(*(it.partition(number) for number in range(count)))
        named: list[int] = []
        while len(named) < count:
            assert len(it.catch_up.partitions) <= PARTITIONS_A_REQUEST_MAX
            assert it.catch_up.fetch.max_wait_ms == 0
            named += [each.partition for each in it.catch_up.partitions]
            it.catch_up.answer()
        assert named == list(range(count))
        assert it.catch_up.fetch.session_epoch == 3, "all in one session"

    run_follower(tmp_path, test)


def test_two_long_requests_are_made_in_two_time_slices(tmp_path: Path) -> None:
    count = LONG_REQUEST_MIN + 1

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(2 * count)]
        it.follow_in_sync(*partitions[:count])
        await until(lambda: "in-sync" in [each.purpose for each in it.channels])
        it.follow(*partitions[count:])
        await until(lambda: bool(it.catch_up.asked))
        it.catch_up.lose()
        it.in_sync.lose()
        it.timers.advance(SETTINGS.backoff_ms)
        requests = [len(channel.asked) for channel in (it.in_sync, it.catch_up)]
        assert sum(requests) == 1
        await asyncio.sleep(0)
        assert len(it.in_sync.partitions) == len(it.catch_up.partitions) == count
        await asyncio.sleep(0)
        assert len(it.in_sync.asked) == len(it.catch_up.asked) == 1

    run_follower(tmp_path, test)


def test_truncations_of_many_partitions_are_begun_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a slice are executed together, before the next slice."""
    slices = count_slices(monkeypatch)
    a_slice = SLICE_COST_MAX // TRUNCATION_COST
    executed: list[int] = []
    execute = LogTruncations.execute

    def noted(truncations: LogTruncations) -> Any:
        executed.append(len(truncations))
        return execute(truncations)

    monkeypatch.setattr(LogTruncations, "execute", noted)

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(a_slice + 10)]
        for each in partitions:
            append(each.log, [(2, 2)])
        it.follow(*partitions)
        it.catch_up.answer(*(diverging(number, 2, 1) for number in range(len(partitions))))
        await until(lambda: bool(it.executor.held))
        assert len(it.executor.held) == 1
        begun = [each.log.is_truncating for each in partitions].count(True)
        assert 0 < begun < a_slice
        unfollowed = partitions[-1]
        it.fetchers.unfollow([unfollowed.topic_partition])
        await until(lambda: len(it.executor.held) == 2)
        assert len(slices) == 2, "one after the decoding"
        assert [each for each in partitions if not each.log.is_truncating] == [unfollowed]
        it.release()
        assert executed == [begun, len(partitions) - 1 - begun], "each log on one thread"

    run_follower(tmp_path, test)


def test_flushes_of_many_partitions_are_begun_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_slice = SLICE_COST_MAX // FLUSH_COST
    monkeypatch.setattr(fetch_session_handler, "PARTITIONS_A_REQUEST_MAX", a_slice + 10)

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(a_slice + 10)]
        it.follow_in_sync(*partitions)
        await until(lambda: "in-sync" in [each.purpose for each in it.channels])
        it.in_sync.answer(*(records(number, batches(0, 1)) for number in range(len(partitions))))
        await until(lambda: bool(it.executor.held))
        assert len(it.executor.held) < len(partitions)
        unfollowed = partitions[-1]
        it.fetchers.unfollow([unfollowed.topic_partition])
        await until(lambda: len(it.executor.held) >= len(partitions) - 1)
        it.release()
        await until(lambda: bool(it.in_sync.asked))
        assert len(it.in_sync.partitions) == len(partitions) - 1
        assert it.in_sync.forgotten == [a_slice + 9]

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


def test_partition_that_is_unfollowed_between_two_lookups_is_not_looked_up(
    tmp_path: Path,
) -> None:
    async def test(it: Follower) -> None:
        count = 2 * LOOKUPS_A_REQUEST_MAX
        partitions = [it.partition(number) for number in range(count)]
        it.follow(*partitions)
        it.catch_up.answer(
            *(failed(number, ErrorCode.OFFSET_OUT_OF_RANGE) for number in range(count))
        )
        await until(lambda: any(each.purpose == "control" for each in it.channels))
        assert len(it.control.asked) == 2, "one slice has one lookup of ends and one of starts"
        it.fetchers.unfollow([partitions[-1].topic_partition])
        await until(lambda: len(it.control.asked) == 4)
        sizes = [len(each.request.topics[0].partitions) for each in it.control.asked]
        assert sizes == [LOOKUPS_A_REQUEST_MAX] * 2 + [LOOKUPS_A_REQUEST_MAX - 1] * 2

    run_follower(tmp_path, test)


def test_lookups_of_many_partitions_are_divided(tmp_path: Path) -> None:
    count = 2 * LOOKUPS_A_REQUEST_MAX + 1

    async def test(it: Follower) -> None:
        partitions = [it.partition(number) for number in range(count)]
        it.follow(*partitions)
        it.catch_up.answer(
            *(failed(number, ErrorCode.OFFSET_OUT_OF_RANGE) for number in range(count))
        )
        await until(lambda: bool(it.catch_up.asked))
        sizes = [len(each.request.topics[0].partitions) for each in it.control.asked]
        assert sizes == [LOOKUPS_A_REQUEST_MAX] * 4 + [1] * 2
        responses = [
            list_offsets(each.request, dict.fromkeys(range(count), (7, 9)))
            for each in it.control.asked
        ]
        for each in responses:
            it.control.respond(each, LIST_OFFSETS_VERSION)
        assert not any(each.log.is_truncating for each in partitions), "each in its own slice"
        await asyncio.sleep(0)
        assert all(each.log.is_truncating for each in partitions)
        assert len(it.executor.held) == 3

    run_follower(tmp_path, test)
