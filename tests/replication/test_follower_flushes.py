"""A follower flushes its log before it fetches again, if the configs demand it."""

from __future__ import annotations

import asyncio
import errno
import gc
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch_run import BATCHES_A_RUN_MAX
from odradek.replication.replica_fetcher import FLUSH_ATTEMPTS_MAX
from tests.helpers.faulty_files import FaultyFiles
from tests.replication.scripted_leader import (
    SETTINGS,
    Follower,
    append,
    back_off,
    batches,
    fetched_offsets,
    nothing,
    records,
    run_follower,
    until,
)


def test_flush_precedes_the_next_fetch(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition, other = it.partition(0), it.partition(1)
        it.follow_in_sync(partition, other)
        it.catch_up.answer(session_id=0)
        it.in_sync.answer(records(0, batches(0, 1), high_watermark=1))
        await asyncio.sleep(0)
        assert not it.in_sync.asked
        assert partition.log.recovery_point == 0
        it.release()
        await until(lambda: bool(it.in_sync.asked))
        assert partition.log.recovery_point == 1
        assert [each.partition for each in it.in_sync.partitions] == [0]

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


def test_partition_that_is_unfollowed_during_its_flush_is_not_fetched_again(
    tmp_path: Path,
) -> None:
    async def test(it: Follower) -> None:
        partition, other = it.partition(0), it.partition(1)
        it.follow_in_sync(partition, other)
        it.catch_up.answer(session_id=0)
        it.in_sync.answer(records(0, batches(0, 1), high_watermark=1))
        await asyncio.sleep(0)
        it.fetchers.unfollow([partition.topic_partition])
        it.release()
        await until(lambda: bool(it.in_sync.asked))
        assert it.in_sync.partitions == []
        assert it.in_sync.forgotten == [0]
        it.in_sync.answer()
        assert it.in_sync.partitions == []

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


def test_flush_precedes_the_next_fetch_of_a_replica_that_moves(tmp_path: Path) -> None:
    """The other connection must not fetch from the new log end either."""

    async def test(it: Follower) -> None:
        first, moving = it.partition(0), it.partition(1)
        it.follow_in_sync(first)
        it.catch_up.answer(session_id=0)
        it.follow(moving)
        it.catch_up.answer(nothing(1))  # it now waits for the request of the other connection
        it.catch_up.answer(records(1, batches(0, 1)))
        it.in_sync.answer()
        assert [each.partition for each in it.in_sync.partitions] == []
        it.release()
        await until(lambda: bool(it.catch_up.asked))
        assert moving.log.recovery_point == 1
        it.in_sync.answer()
        assert [(each.partition, each.fetch_offset) for each in it.in_sync.partitions] == [(1, 1)]

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


def test_flush_precedes_a_fetch_between_two_slices_of_a_replica_that_moves(tmp_path: Path) -> None:
    """The first slice has appended records when the other connection sends its next request."""

    async def test(it: Follower) -> None:
        first, moving = it.partition(0), it.partition(1)
        it.follow_in_sync(first)
        it.catch_up.answer(session_id=0)
        it.follow(moving)
        it.catch_up.answer(nothing(1))
        it.catch_up.answer(records(1, batches(0, 5_500)))
        assert 0 < moving.log.log_end_offset < 5_500
        it.in_sync.answer()
        assert it.in_sync.partitions == []
        await until(lambda: bool(it.executor.held))
        it.release()
        await until(lambda: bool(it.catch_up.asked))
        assert moving.log.recovery_point == 5_500

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


@pytest.mark.parametrize("cause", ["invalid records", "full disk", "malformed response"])
def test_flush_precedes_the_next_fetch_after_an_error(tmp_path: Path, cause: str) -> None:
    """The error follows records that were appended and not flushed."""
    files = FaultyFiles()

    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        await back_off(it)
        it.in_sync.answer(records(0, batches(0, 1)))
        it.release()
        await until(lambda: bool(it.in_sync.asked))
        end = 1 + BATCHES_A_RUN_MAX
        run, rest = batches(1, BATCHES_A_RUN_MAX), bytearray(batches(end, 1))
        if cause == "malformed response":
            it.in_sync.answer(records(0, run), nothing(99))
        else:
            if cause == "full disk":
                files.space_left = len(run)
            else:
                rest[-1] ^= 1
            it.in_sync.answer(records(0, run + rest))
        assert partition.log.log_end_offset == end
        files.space_left = None
        await back_off(it)
        assert fetched_offsets(it) == []
        it.release()
        await back_off(it)
        assert partition.log.recovery_point == end
        assert fetched_offsets(it) == [end]

    run_follower(tmp_path, test, files=files, config=LogConfig(flush_messages=1))


def test_error_of_a_flush_that_is_a_bug_does_not_end_the_fetches(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partitions = [it.partition(each) for each in range(2)]
        it.follow_in_sync(*partitions)
        await back_off(it)
        it.in_sync.answer(*(records(each, batches(0, 1)) for each in range(2)))
        (failing, _), _ = it.executor.held
        it.executor.held = it.executor.held[1:]
        failing.set_exception(RuntimeError("a bug"))
        await until(lambda: it.timers.armed > 0)
        assert fetched_offsets(it) == []
        it.release()
        await back_off(it)
        it.release()
        await until(lambda: all(each.log.recovery_point == 1 for each in partitions))
        await back_off(it)
        fetched = fetched_offsets(it)
        it.catch_up.answer()  # the partitions were flushed one after the other
        assert fetched + fetched_offsets(it) == [1, 1]

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


def test_flush_of_recovered_records_precedes_the_first_fetch(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        end = partition.log.log_end_offset
        assert partition.log.recovery_point < end
        it.follow(partition)
        assert not [each for channel in it.channels for each in channel.asked]
        it.release()
        await until(lambda: any(each.asked for each in it.channels))
        assert partition.log.recovery_point == end
        (fetched,) = it.catch_up.partitions
        assert fetched.fetch_offset == end

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


@pytest.mark.parametrize("count", [3, 4])
def test_first_fetch_waits_for_a_flush_from_the_configured_number_of_records_on(
    tmp_path: Path, count: int
) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, count)])
        it.follow(partition)
        assert len(it.executor.held) == (count == 4)
        assert bool(it.channels) == (count == 3)

    run_follower(tmp_path, test, config=LogConfig(flush_messages=4))


@pytest.mark.parametrize("is_recovered", [True, False])
def test_flush_without_a_free_descriptor_is_repeated_until_there_is_one(
    tmp_path: Path, is_recovered: bool
) -> None:
    """The records were recovered, or have just arrived. No fetch follows before they are flushed.

    The log directory is online. Otherwise the partition is stopped at once.
    """

    async def test(it: Follower) -> None:
        partition = it.partition()
        if is_recovered:
            append(partition.log, [(2, 4)])
            it.follow(partition)
        else:
            it.follow_in_sync(partition)
            it.in_sync.answer(records(0, batches(0, 4), high_watermark=4))
        for _ in range(FLUSH_ATTEMPTS_MAX + 2):
            assert partition.error is not ErrorCode.KAFKA_STORAGE_ERROR
            await until(lambda: bool(it.executor.held))
            ((flush, _),) = it.executor.held
            it.executor.held = []
            flush.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no flush"))
            for _ in range(5):
                await asyncio.sleep(0)
            it.timers.advance(SETTINGS.backoff_ms)
            sent = [each for channel in it.channels for each in channel.asked]
            assert all(not each.request.topics for each in sent)
        await until(lambda: bool(it.executor.held))
        it.release()
        await until(lambda: partition.log.recovery_point == 4)
        assert partition.error is not ErrorCode.KAFKA_STORAGE_ERROR

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


def test_flush_that_fails_because_of_a_bug_stops_the_partition(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        for _ in range(FLUSH_ATTEMPTS_MAX):
            assert partition.error is not ErrorCode.KAFKA_STORAGE_ERROR
            await until(lambda: bool(it.executor.held))
            ((flush, _),) = it.executor.held
            it.executor.held = []
            flush.set_exception(RuntimeError("a bug"))
            for _ in range(5):
                await asyncio.sleep(0)
            it.timers.advance(SETTINGS.backoff_ms)
        assert partition.error is ErrorCode.KAFKA_STORAGE_ERROR

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


def test_repeated_flush_precedes_the_next_fetch(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        it.in_sync.answer(records(0, batches(0, 4), high_watermark=4))
        await until(lambda: bool(it.executor.held))
        ((flush, _),) = it.executor.held
        it.executor.held = []
        flush.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no flush"))
        for _ in range(5):
            await asyncio.sleep(0)
        it.timers.advance(SETTINGS.backoff_ms)
        assert partition.log.recovery_point == 0
        it.release()
        await until(lambda: partition.log.recovery_point == 4)
        for _ in range(5):
            await asyncio.sleep(0)
        if it.catch_up.fetch.session_epoch == -1:
            it.catch_up.answer(session_id=0)
        (fetched,) = it.catch_up.partitions
        assert fetched.fetch_offset == 4

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


@pytest.mark.parametrize("end", ["success", "failure", "failure before"])
def test_partition_that_is_unfollowed_during_its_first_flush_is_not_fetched(
    tmp_path: Path, end: str
) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        ((flush, work),) = it.executor.held
        it.executor.held = []
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no flush")
        if end == "failure before":
            flush.set_exception(error)
            await until(lambda: it.timers.armed > 0)
        it.fetchers.unfollow([partition.topic_partition])
        if end == "failure":
            flush.set_exception(error)
        elif end == "success":
            flush.set_result(work())
        del flush
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
        it.timers.advance(SETTINGS.backoff_ms)
        assert not it.executor.held
        assert not [each for channel in it.channels for each in channel.asked]

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


def test_stopped_follower_does_not_fetch_after_its_first_flush(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        await it.fetchers.stop()
        it.release()
        for _ in range(5):
            await asyncio.sleep(0)
        assert it.channels == []

    run_follower(tmp_path, test, config=LogConfig(flush_messages=1))


def test_failed_flush_stops_the_partition(tmp_path: Path) -> None:
    files = FaultyFiles()

    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        it.in_sync.answer(records(0, batches(0, 1)))
        files.fail_fsync = OSError(errno.EIO, "I/O error")
        await until(lambda: bool(it.executor.held))
        _release_with_errors(it)
        await until(lambda: partition.error is ErrorCode.KAFKA_STORAGE_ERROR)
        await until(lambda: all(each.closed for each in it.channels))

    run_follower(tmp_path, test, files=files, config=LogConfig(flush_messages=1))


def _release_with_errors(it: Follower) -> None:
    held, it.executor.held = it.executor.held, []
    for future, work in held:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - as in a thread pool
            future.set_exception(error)
