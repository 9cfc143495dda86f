"""A fetcher whose log diverges from a scripted leader's, or is out of its range."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.replication import follower_truncations
from odradek.replication.follower_truncations import TRUNCATION_DELAYS_MAX
from odradek.replication.partition import Partition
from tests.helpers.faulty_files import FaultyFiles
from tests.log.builders import TOPIC_ID
from tests.replication.scripted_leader import (
    LEADER,
    LEADER_EPOCH,
    SETTINGS,
    Follower,
    after_truncation,
    append,
    batch_at,
    batches,
    bytes_of,
    diverging,
    failed,
    leader_log,
    list_offsets,
    look_up,
    nothing,
    records,
    registration,
    run_follower,
    until,
)

# --- truncation ---


def test_f4_f10_follower_truncates_before_it_fetches_again(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 3), (4, 4)])
        partition.log.advance_high_watermark(5)
        it.follow(partition)
        it.catch_up.answer(diverging(0, 4, 6))
        assert partition.log.is_truncating
        assert it.catch_up.partitions == []
        fetched = await after_truncation(it)
        assert partition.log.log_end_offset == 6
        assert partition.log.high_watermark == 5
        assert (fetched.fetch_offset, fetched.last_fetched_epoch) == (6, 4)

    run_follower(tmp_path, test)


@pytest.mark.parametrize(
    ("own_epoch", "epoch", "end", "expected"),
    [(2, 0, 0, 0), (2, 0, 2, 0), (2, 2, 0, 0), (0, 0, 0, 0), (0, 0, 2, 2)],
)
def test_f10_epoch_0_and_offset_0_are_a_divergence_like_others(
    tmp_path: Path, own_epoch: int, epoch: int, end: int, expected: int
) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(own_epoch, 4)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, epoch, end))
        fetched = await after_truncation(it)
        assert (fetched.fetch_offset, partition.log.log_end_offset) == (expected, expected)

    run_follower(tmp_path, test)


def test_f10_follower_that_lacks_the_epoch_truncates_in_two_steps(tmp_path: Path) -> None:
    """KIP-279. The logs are (2, 2, 4, 4, 4) and (2, 2, 2, 3, 3)."""

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 2), (4, 3)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, 3, 5))
        fetched = await after_truncation(it)
        assert (fetched.fetch_offset, fetched.last_fetched_epoch) == (2, 2)
        # The leader's epoch 2 has one record more, so the follower does not diverge any longer.
        data = bytes(leader_log(2, [(2, 1), (3, 2)]))
        it.catch_up.answer(records(0, data, high_watermark=5))
        assert bytes_of(partition.log) == bytes(leader_log(0, [(2, 3), (3, 2)]))
        assert partition.log.epochs.entries() == [(2, 0), (3, 3)]

    run_follower(tmp_path, test)


def test_f10_partitions_of_a_response_are_truncated_together(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partitions = [it.partition(each) for each in range(4)]
        for each in partitions:
            append(each.log, [(2, 4)])
        it.follow(*partitions)
        it.catch_up.answer(*(diverging(each, 2, each) for each in range(1, 4)), nothing(0))
        assert len(it.executor.held) == 1
        it.release()
        for _ in range(10):
            await asyncio.sleep(0)
        assert [each.log.log_end_offset for each in partitions] == [4, 1, 2, 3]

    run_follower(tmp_path, test)


def test_truncation_of_a_partition_that_is_led_again_ends_before_it_leads(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, 2, 1))
        it.fetchers.unfollow([partition.topic_partition])
        led_again: list[int] = []
        log = partition.log
        it.fetchers.when_truncated(log, lambda: led_again.append(log.log_end_offset))
        it.release()
        await until(lambda: bool(led_again))
        assert led_again == [1]

    run_follower(tmp_path, test)


def test_partition_of_a_new_epoch_is_fetched_when_the_truncation_has_ended(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, 2, 1))
        it.follow(partition, epoch=6, leader=3)
        channels = [each for each in it.channels if each.address[0] == "broker-3"]
        assert not [each for channel in channels for each in channel.asked]
        it.release()
        await until(
            lambda: any(each.asked for each in it.channels if each.address[0] == "broker-3")
        )
        (fetched,) = it.channel("catch-up", "broker-3").partitions
        assert (fetched.current_leader_epoch, fetched.fetch_offset) == (6, 1)

    run_follower(tmp_path, test)


def test_replica_that_is_removed_and_added_again_is_fetched_after_the_truncation(
    tmp_path: Path,
) -> None:
    """A reassignment removes the replica and is cancelled. The log is the same."""

    async def test(it: Follower) -> None:
        removed = it.partition()
        append(removed.log, [(2, 4)])
        it.follow(removed)
        it.catch_up.answer(diverging(0, 2, 1))
        it.fetchers.unfollow([removed.topic_partition])
        added = Partition(removed.topic_partition, TOPIC_ID, removed.log)
        it.follow(added)
        assert all(each.closed for each in it.channels), "nothing is fetched yet"
        it.release()
        await until(lambda: any(each.asked and not each.closed for each in it.channels))
        it.catch_up.answer(records(0, batches(1, 3), high_watermark=4))
        assert added.log.log_end_offset == 4
        assert (removed.log.high_watermark, added.error) == (4, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    run_follower(tmp_path, test)


def test_failed_truncation_stops_a_replica_that_was_added_again(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        removed = it.partition()
        append(removed.log, [(2, 4)])
        it.follow(removed)
        it.catch_up.answer(diverging(0, 2, 1))
        added = Partition(removed.topic_partition, TOPIC_ID, removed.log)
        it.follow(added)
        ((truncation, _),) = it.executor.held
        it.executor.held = []
        truncation.set_exception(RuntimeError("a bug"))
        await until(lambda: added.error is ErrorCode.KAFKA_STORAGE_ERROR)
        assert all(each.closed for each in it.channels), "nothing is left to fetch"

    run_follower(tmp_path, test)


def test_partition_of_a_new_epoch_may_come_before_the_end_of_the_truncation_is_noticed(
    tmp_path: Path,
) -> None:
    """The thread has ended, and its callback follows."""

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, 2, 1))
        it.catch_up.answer(session_id=0)  # of the session without partitions
        it.release()
        assert not partition.log.is_truncating
        it.follow(partition, epoch=6)
        for _ in range(5):
            await asyncio.sleep(0)
        (fetched,) = it.catch_up.partitions
        assert (fetched.current_leader_epoch, fetched.fetch_offset) == (6, 1)

    run_follower(tmp_path, test)


def test_divergence_that_cuts_nothing_backs_off(tmp_path: Path) -> None:
    """A leader that contradicts itself is not asked again and again."""

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, 2, 9))
        assert not it.executor.held
        assert it.catch_up.fetch.session_epoch == -1
        it.catch_up.answer(session_id=0)
        assert not it.catch_up.asked
        it.timers.advance(SETTINGS.backoff_ms)
        assert it.catch_up.partitions[0].fetch_offset == 4

    run_follower(tmp_path, test)


@pytest.mark.parametrize(("epoch", "end"), [(2, -1), (-1, 2)])
def test_divergence_without_an_epoch_backs_off(tmp_path: Path, epoch: int, end: int) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, epoch, end))
        assert not partition.log.is_truncating
        assert it.catch_up.fetch.session_epoch == -1, "nothing is fetched before the backoff"
        it.catch_up.answer(session_id=0)
        it.timers.advance(SETTINGS.backoff_ms)
        assert it.catch_up.partitions[0].fetch_offset == 4

    run_follower(tmp_path, test)


def test_io_error_of_a_truncation_stops_the_partition(tmp_path: Path) -> None:
    files = FaultyFiles()

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, 2, 1))
        files.fail_fsync = OSError(errno.EIO, "I/O error")
        it.release()
        await until(lambda: partition.error is ErrorCode.KAFKA_STORAGE_ERROR)
        assert all(each.closed for each in it.channels), "nothing is left to fetch"

    run_follower(tmp_path, test, files=files)


def test_failed_truncation_of_a_deleted_partition_does_not_stop_its_successor(
    tmp_path: Path,
) -> None:
    async def test(it: Follower) -> None:
        deleted, other = it.partition(0), it.partition(9)
        successor = Partition(deleted.topic_partition, TOPIC_ID, other.log)
        append(deleted.log, [(2, 4)])
        it.follow(deleted)
        it.catch_up.answer(diverging(0, 2, 1))
        it.catch_up.answer(session_id=0)  # of the session without partitions
        it.follow(successor)
        ((truncation, _),) = it.executor.held
        it.executor.held = []
        truncation.set_exception(RuntimeError("a bug"))
        await until(lambda: deleted.error is ErrorCode.KAFKA_STORAGE_ERROR)
        assert successor.error is not ErrorCode.KAFKA_STORAGE_ERROR
        it.catch_up.answer(records(0, batches(0, 3), high_watermark=3))
        assert successor.log.log_end_offset == 3

    run_follower(tmp_path, test)


def test_truncation_of_a_deleted_partition_does_not_resume_its_successor(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        deleted, other = it.partition(0), it.partition(9)
        successor = Partition(deleted.topic_partition, TOPIC_ID, other.log)
        for each in (deleted, successor):
            append(each.log, [(2, 4)])
            it.follow(each)
            it.catch_up.answer(diverging(0, 2, 1))
            it.catch_up.answer(session_id=0)  # of the session without partitions
        first, second = it.executor.held
        it.executor.held = [first]
        it.release()
        for _ in range(5):
            await asyncio.sleep(0)
        assert successor.log.is_truncating
        assert not it.catch_up.asked
        it.executor.held = [second]
        fetched = await after_truncation(it)
        assert fetched.fetch_offset == 1

    run_follower(tmp_path, test)


def test_full_disk_repeats_a_truncation_until_there_is_space(tmp_path: Path) -> None:
    files = FaultyFiles()

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, 2, 1))
        files.space_left = 0
        for attempt in range(TRUNCATION_DELAYS_MAX + 2):
            assert partition.error is ErrorCode.NOT_LEADER_OR_FOLLOWER, attempt
            await until(lambda: bool(it.executor.held))
            it.release()
            for _ in range(5):
                await asyncio.sleep(0)
            delays = min(attempt + 1, TRUNCATION_DELAYS_MAX)
            it.timers.advance(SETTINGS.backoff_ms * delays - 1)
            assert not it.executor.held
            it.timers.advance(1)
        files.space_left = None
        fetched = await after_truncation(it)
        assert fetched.fetch_offset == 1

    run_follower(tmp_path, test, files=files)


def test_stop_waits_for_running_truncations(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, 2, 1))
        stopped = asyncio.ensure_future(it.fetchers.stop())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not stopped.done()
        it.release()
        await stopped
        assert not partition.log.is_truncating

    run_follower(tmp_path, test)


def test_stop_waits_for_a_hanging_truncation_until_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_truncations, "STOP_WAIT_S", 0)

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, 2, 1))
        await it.fetchers.stop()
        assert partition.log.is_truncating

    run_follower(tmp_path, test)


# --- out of range ---


def test_f12_follower_below_the_leaders_start_begins_again_there(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        await look_up(it, {0: (10, 20)})
        fetched = await after_truncation(it)
        assert (fetched.fetch_offset, fetched.last_fetched_epoch) == (10, -1)
        assert partition.log.log_start_offset == 10
        it.catch_up.answer(records(0, batches(10, 2), high_watermark=12, log_start=10))
        assert partition.log.log_end_offset == 12

    run_follower(tmp_path, test)


def test_f5_f12_follower_above_the_leaders_end_truncates_to_it(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 8)])
        partition.log.advance_high_watermark(8)
        it.follow(partition)
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        await look_up(it, {0: (0, 3)})
        fetched = await after_truncation(it)
        assert (fetched.fetch_offset, partition.log.high_watermark) == (3, 3)

    run_follower(tmp_path, test)


def test_f12_follower_begins_inside_a_batch_of_its_leader(tmp_path: Path) -> None:
    """DeleteRecords moved the leader's log start to 12, into the batch from 10 to 13."""

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        await look_up(it, {0: (12, 20)})
        assert (await after_truncation(it)).fetch_offset == 12
        data = records(0, batch_at(10, 4), high_watermark=14, log_start=12)
        it.catch_up.answer(data)
        assert partition.log.is_truncating
        assert it.catch_up.partitions == []
        fetched = await after_truncation(it)
        assert (fetched.fetch_offset, fetched.log_start_offset) == (12, 12)
        it.catch_up.answer(data)
        log = partition.log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (12, 14, 14)
        assert log.epochs.entries() == [(LEADER_EPOCH, 12)]

    run_follower(tmp_path, test)


def test_f12_follower_whose_records_the_leader_has_deleted_begins_inside_a_batch(
    tmp_path: Path,
) -> None:
    """An unclean election replaced the records, so no batch of the leader ends with the log."""

    async def test(it: Follower) -> None:
        partitions = [it.partition(each) for each in range(3)]
        for each in partitions:
            append(each.log, [(2, 4)])
        it.follow(*partitions)
        inside = [records(each, batch_at(2, 4), log_start=4) for each in range(2)]
        it.catch_up.answer(*inside, diverging(2, 2, 1))
        assert len(it.executor.held) == 1, "truncated together"
        assert [each.log.is_truncating for each in partitions] == [True] * 3
        it.catch_up.answer(session_id=0)  # of the session without partitions
        it.release()
        for _ in range(2):  # the first truncation that ends sends a request
            await until(lambda: bool(it.catch_up.asked))
            named = [each.partition for each in it.catch_up.partitions]
            it.catch_up.answer(*(inside[each] for each in named if each < 2))
        for each in partitions[:2]:
            assert (each.log.log_start_offset, each.log.log_end_offset) == (4, 6)

    run_follower(tmp_path, test)


def test_f12_follower_keeps_the_records_that_its_leader_has_not_deleted(tmp_path: Path) -> None:
    """The leader contradicts itself. The follower does not ask again and again."""

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(records(0, batch_at(2, 4), log_start=3))
        assert not partition.log.is_truncating
        assert partition.log.log_end_offset == 4
        it.catch_up.answer(session_id=0)
        assert not it.catch_up.asked
        it.timers.advance(SETTINGS.backoff_ms)
        assert it.catch_up.partitions[0].fetch_offset == 4

    run_follower(tmp_path, test)


def test_f12_follower_in_the_leaders_range_backs_off(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 8)])
        it.follow(partition)
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        await look_up(it, {0: (0, 8)})
        it.catch_up.answer(session_id=0)
        assert not it.catch_up.asked
        it.timers.advance(SETTINGS.backoff_ms)
        assert it.catch_up.partitions[0].fetch_offset == 8
        assert partition.log.log_end_offset == 8

    run_follower(tmp_path, test)


def test_lost_or_refused_lookup_is_repeated_after_a_backoff(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 8)])
        it.follow(partition)
        for attempt in range(2):
            it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
            if attempt:
                it.control.lose()
            else:
                error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                for asked in tuple(it.control.asked):
                    it.control.respond(list_offsets(asked.request, {0: (0, 3)}, error), 10)
            await asyncio.sleep(0)
            it.catch_up.answer(session_id=0)
            assert not it.catch_up.asked
            it.timers.advance(SETTINGS.backoff_ms)
            assert it.catch_up.partitions[0].fetch_offset == 8

    run_follower(tmp_path, test)


@pytest.mark.parametrize("kind", ["error", "no partition", "negative offsets"])
def test_lookup_without_offsets_truncates_nothing_and_does_not_delay_the_others(
    tmp_path: Path, kind: str
) -> None:
    async def test(it: Follower) -> None:
        refused, other = it.partition(0), it.partition(1)
        for each in (refused, other):
            append(each.log, [(2, 8)])
        it.follow(refused, other)
        it.catch_up.answer(*(failed(each, ErrorCode.OFFSET_OUT_OF_RANGE) for each in range(2)))
        for asked in tuple(it.control.asked):
            response = list_offsets(asked.request, {0: (0, 3), 1: (0, 3)})
            first = response.topics[0].partitions[0]
            if kind == "error":
                first.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif kind == "no partition":
                del response.topics[0].partitions[0]
            else:
                first.offset = -1
            it.control.respond(response, 10)
        await asyncio.sleep(0)
        assert [each.log.is_truncating for each in (refused, other)] == [False, True]
        it.catch_up.answer(session_id=0)
        it.timers.advance(SETTINGS.backoff_ms)
        fetched = [(each.partition, each.fetch_offset) for each in it.catch_up.partitions]
        assert fetched == [(0, 8)]

    run_follower(tmp_path, test)


def test_lookup_is_repeated_while_the_leaders_address_is_not_known(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 8)])
        it.follow(partition)
        del it.brokers[LEADER]
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        it.catch_up.answer(session_id=0)
        it.brokers[LEADER] = registration(1)
        it.timers.advance(SETTINGS.backoff_ms)
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        assert it.control.asked

    run_follower(tmp_path, test)


@pytest.mark.parametrize("is_lost", [False, True])
def test_late_lookup_of_an_earlier_epoch_changes_nothing(tmp_path: Path, is_lost: bool) -> None:
    async def test(it: Follower) -> None:
        partition, other = it.partition(0), it.partition(1)
        append(partition.log, [(2, 8)])
        it.follow(partition, other)
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE), nothing(1))
        it.follow(partition, epoch=6)
        if is_lost:
            it.control.lose()
            await asyncio.sleep(0)
        else:
            await look_up(it, {0: (0, 3)})
        assert not partition.log.is_truncating
        assert partition.log.log_end_offset == 8
        it.catch_up.answer(session_id=0)  # of the session without partitions
        (fetched,) = it.catch_up.partitions
        assert fetched.current_leader_epoch == 6
        it.timers.advance(SETTINGS.backoff_ms)
        it.catch_up.answer(nothing(0, high_watermark=9))
        assert it.catch_up.partitions == [], "the earlier epoch is not fetched"

    run_follower(tmp_path, test)


def test_lookup_goes_to_the_leaders_new_address(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 8)])
        it.follow(partition)
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        old = it.control
        old.lose()
        await asyncio.sleep(0)
        it.brokers[LEADER] = registration(9)
        it.catch_up.answer(session_id=0)
        it.timers.advance(SETTINGS.backoff_ms)
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        assert old.closed
        assert it.channel("control", "broker-9").asked

    run_follower(tmp_path, test)
