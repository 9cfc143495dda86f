"""A fetcher against a scripted leader: appends, truncations, errors, and lost or late responses."""

from __future__ import annotations

import asyncio
import errno
import logging
from pathlib import Path

import pytest

from odradek.errors import ErrorCode
from odradek.ids import ZERO_UUID
from odradek.protocol.messages.fetch_response import EpochEndOffset, PartitionData
from odradek.protocol.messages.list_offsets_request import ListOffsetsRequest
from odradek.replication import replica_fetcher
from odradek.replication.fetch_plan import (
    CATCH_UP_BYTES_MAX,
    CATCH_UP_WAIT_MAX_MS,
    SHORT_BACKOFF_MS,
    SHORT_BACKOFFS_MAX,
)
from tests.helpers.faulty_files import FaultyFiles
from tests.replication.scripted_leader import (
    BROKER_EPOCH,
    FOLLOWER,
    LEADER,
    LEADER_EPOCH,
    SETTINGS,
    Follower,
    after_truncation,
    append,
    back_off,
    batches,
    bytes_of,
    diverging,
    failed,
    fetched_offsets,
    look_up,
    nothing,
    records,
    registration,
    run_follower,
    until,
)

# --- requests ---


def test_first_fetch_opens_a_session_with_the_position_of_each_log(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        empty, filled = it.partition(0), it.partition(1)
        append(filled.log, [(2, 3), (4, 2)])
        it.follow(empty, filled)
        fetch = it.catch_up.fetch
        assert (fetch.session_id, fetch.session_epoch) == (0, 0)
        assert fetch.replica_state is not None
        assert fetch.replica_state.replica_id == FOLLOWER
        assert fetch.replica_state.replica_epoch == BROKER_EPOCH
        assert [
            (each.partition, each.fetch_offset, each.last_fetched_epoch, each.current_leader_epoch)
            for each in it.catch_up.partitions
        ] == [(0, 0, -1, LEADER_EPOCH), (1, 5, 4, LEADER_EPOCH)]
        assert fetch.max_wait_ms == 0, "the lag is not known"
        assert fetch.max_bytes == CATCH_UP_BYTES_MAX

    run_follower(tmp_path, test)


def test_epoch_without_a_record_is_not_the_last_fetched_epoch(tmp_path: Path) -> None:
    """This broker led epoch 4, in which nothing was appended."""

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 3)])
        partition.log.begin_leader_epoch(4)
        it.follow(partition)
        (fetched,) = it.catch_up.partitions
        assert fetched.last_fetched_epoch == 2

    run_follower(tmp_path, test)


def test_r8_records_are_appended_and_the_next_fetch_follows_in_the_same_step(
    tmp_path: Path,
) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        data = batches(0, 2)
        tasks = asyncio.all_tasks()
        it.in_sync.answer(records(0, data, high_watermark=1))
        (fetched,) = it.in_sync.partitions
        assert asyncio.all_tasks() == tasks, "no task is needed"
        assert (fetched.fetch_offset, fetched.last_fetched_epoch) == (2, LEADER_EPOCH)
        assert bytes_of(partition.log) == data
        assert partition.log.high_watermark == 1
        assert it.in_sync.fetch.session_epoch == 1

    run_follower(tmp_path, test)


def test_r8_high_watermark_and_log_start_of_the_leader_are_taken_over_without_records(
    tmp_path: Path,
) -> None:
    async def test(it: Follower) -> None:
        partition, other = it.partition(0), it.partition(1)
        it.follow_in_sync(partition, other)
        it.in_sync.answer(records(0, batches(0, 4), high_watermark=0))
        it.in_sync.answer(nothing(0, high_watermark=9))
        assert partition.log.high_watermark == 4, "at most the own log end"
        assert it.in_sync.partitions == [], "no position has changed"
        it.in_sync.answer(nothing(0, high_watermark=9, log_start=3))
        assert partition.log.log_start_offset == 3
        (fetched,) = it.in_sync.partitions
        assert (fetched.partition, fetched.log_start_offset) == (0, 3), "for DeleteRecords"

    run_follower(tmp_path, test)


def test_request_names_only_partitions_whose_position_has_changed(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        it.follow_in_sync(*(it.partition(each) for each in range(5)))
        assert len(it.in_sync.partitions) == 5
        it.in_sync.answer(records(3, batches(0, 1), high_watermark=1))
        assert [each.partition for each in it.in_sync.partitions] == [3]
        it.in_sync.answer()
        assert it.in_sync.partitions == []

    run_follower(tmp_path, test)


# --- connections ---


def test_replica_behind_the_high_watermark_stays_in_catch_up_until_it_reaches_it(
    tmp_path: Path,
) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow(partition)
        it.catch_up.answer(records(0, batches(0, 2), high_watermark=4))
        assert it.catch_up.fetch.max_wait_ms == CATCH_UP_WAIT_MAX_MS
        assert "in-sync" not in [each.purpose for each in it.channels]
        it.catch_up.answer(records(0, batches(2, 2), high_watermark=4))
        assert it.in_sync.partitions[0].fetch_offset == 4
        assert it.in_sync.fetch.max_wait_ms == SETTINGS.wait_max_ms
        assert it.in_sync.fetch.max_bytes == SETTINGS.response_max_bytes
        assert it.catch_up.fetch.session_epoch == -1, "the session without partitions is closed"

    run_follower(tmp_path, test)


def test_replica_that_moves_is_fetched_by_catch_up_until_the_other_request_names_it(
    tmp_path: Path,
) -> None:
    async def test(it: Follower) -> None:
        first, second = it.partition(0), it.partition(1)
        it.follow_in_sync(first)
        it.catch_up.answer(session_id=0)
        it.follow(second)
        it.catch_up.answer(nothing(1))
        assert [each.partition for each in it.catch_up.partitions] == []
        assert it.catch_up.forgotten == []
        it.catch_up.answer(records(1, batches(0, 1)))
        assert second.log.log_end_offset == 1
        it.in_sync.answer()
        assert [each.partition for each in it.in_sync.partitions] == [1]
        it.catch_up.answer()
        assert it.catch_up.fetch.session_epoch == -1

    run_follower(tmp_path, test)


def test_replica_that_falls_behind_moves_to_catch_up(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition, other = it.partition(0), it.partition(1)
        it.follow_in_sync(partition, other)
        it.catch_up.answer(session_id=0)
        it.in_sync.answer(records(0, batches(0, 1), high_watermark=50))
        it.in_sync.answer(records(0, batches(1, 1), high_watermark=50))
        assert it.in_sync.forgotten == [0]
        assert it.catch_up.partitions[0].fetch_offset == 2

    run_follower(tmp_path, test)


@pytest.mark.parametrize("paused", [diverging(0, 2, 1), failed(0, ErrorCode.OFFSET_OUT_OF_RANGE)])
def test_malformed_response_does_not_end_the_fetches_of_partitions_that_it_pauses(
    tmp_path: Path, paused: PartitionData
) -> None:
    """It costs the connection, never state."""

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        it.catch_up.answer(paused, nothing(99))
        assert not partition.log.is_truncating
        await back_off(it)
        assert fetched_offsets(it) == [4]
        it.catch_up.answer(paused)
        if paused.error_code:
            await look_up(it, {0: (0, 1)})
        assert (await after_truncation(it)).fetch_offset == 1

    run_follower(tmp_path, test)


def test_partitions_whose_lookup_cannot_be_sent_are_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[ListOffsetsRequest]:
        monkeypatch.undo()
        raise RuntimeError("a bug")

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        monkeypatch.setattr(replica_fetcher, "list_offsets_requests", fail)
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        await back_off(it)
        assert fetched_offsets(it) == [4]
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        await look_up(it, {0: (0, 1)})
        assert (await after_truncation(it)).fetch_offset == 1

    run_follower(tmp_path, test)


def test_end_of_an_earlier_truncation_does_not_resume_a_partition_that_waits_for_a_lookup(
    tmp_path: Path,
) -> None:
    """The thread has ended, and a new epoch and two responses precede its callback."""

    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 8)])
        it.follow(partition)
        it.catch_up.answer(diverging(0, 2, 6))
        it.catch_up.answer(session_id=0)  # of the session without partitions
        it.release()
        it.follow(partition, epoch=6)
        it.catch_up.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        it.catch_up.answer(session_id=0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert fetched_offsets(it) == []
        await look_up(it, {0: (0, 3)})
        assert (await after_truncation(it)).fetch_offset == 3

    run_follower(tmp_path, test)


# --- late and invalid responses ---


def test_f11_response_of_an_earlier_epoch_changes_nothing(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition, other = it.partition(0), it.partition(1)
        it.follow(partition, other)
        it.follow(partition, epoch=6)
        it.catch_up.answer(records(0, batches(0, 2)), diverging(1, 0, 0))
        assert partition.log.log_end_offset == 0
        (fetched,) = [each for each in it.catch_up.partitions if each.partition == 0]
        assert fetched.current_leader_epoch == 6

    run_follower(tmp_path, test)


def test_f11_response_after_the_partition_is_unfollowed_changes_nothing(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition, other = it.partition(0), it.partition(1)
        it.follow(partition, other)
        it.fetchers.unfollow([partition.topic_partition])
        it.catch_up.answer(records(0, batches(0, 2)), nothing(1))
        assert partition.log.log_end_offset == 0
        assert it.catch_up.forgotten in ([0], [])

    run_follower(tmp_path, test)


def test_f11_two_responses_with_the_same_records_append_them_once(tmp_path: Path) -> None:
    """A replica that moves may be in flight on both connections."""

    async def test(it: Follower) -> None:
        first, moving = it.partition(0), it.partition(1)
        it.follow_in_sync(first)
        it.catch_up.answer(session_id=0)
        it.follow(moving)
        it.catch_up.answer(nothing(1))
        it.in_sync.answer()
        data = batches(0, 2)
        it.in_sync.answer(records(1, data))
        it.catch_up.answer(records(1, data))
        assert bytes_of(moving.log) == data
        assert it.in_sync.partitions[0].fetch_offset == 2

    run_follower(tmp_path, test)


def test_f11_partition_of_a_void_response_is_named_with_its_new_position(tmp_path: Path) -> None:
    """Otherwise the leader's session would keep the old position."""

    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        append(partition.log, [(2, 3)])
        it.in_sync.answer(records(0, batches(0, 1), high_watermark=1))
        assert partition.log.log_end_offset == 3
        assert [each.fetch_offset for each in it.in_sync.partitions] == [3]

    run_follower(tmp_path, test)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(batches(1, 1)[:-1], id="torn"),
        pytest.param(batches(0, 1)[:-1] + b"x", id="crc"),
        pytest.param(batches(0, 2)[66:], id="no header"),
        pytest.param(batches(0, 1, epoch=LEADER_EPOCH + 1), id="future epoch"),
        pytest.param(bytes(80), id="zeros"),
    ],
)
def test_r8_invalid_records_back_off_with_a_log_line(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(it: Follower) -> None:
        partition, other = it.partition(0), it.partition(1)
        it.follow_in_sync(partition, other)
        it.catch_up.answer(session_id=0)
        it.in_sync.answer(records(0, data), records(1, batches(0, 1)))
        assert partition.log.log_end_offset == 0
        assert other.log.log_end_offset == 1, "the others continue"
        assert it.in_sync.forgotten == [0]
        assert "t-0 is not fetched from broker 1" in caplog.text
        it.timers.advance(SETTINGS.backoff_ms)
        assert [each.partition for each in it.catch_up.partitions] == [0]

    with caplog.at_level(logging.WARNING):
        run_follower(tmp_path, test)


def test_part_of_a_batch_at_the_end_is_fetched_again(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        data = batches(0, 3)
        it.in_sync.answer(records(0, data[:-5]))
        assert it.in_sync.partitions[0].fetch_offset == 2
        it.in_sync.answer(records(0, batches(2, 1)))
        assert bytes_of(partition.log) == data

    run_follower(tmp_path, test)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_first_errors_of_different_metadata_have_short_delays(
    tmp_path: Path, error: ErrorCode
) -> None:
    async def test(it: Follower) -> None:
        partition, other = it.partition(0), it.partition(1)
        it.follow_in_sync(partition, other)
        it.catch_up.answer(session_id=0)
        it.in_sync.answer(failed(0, error))
        for _ in range(SHORT_BACKOFFS_MAX):
            it.timers.advance(SHORT_BACKOFF_MS - 1)
            assert not it.catch_up.asked
            it.timers.advance(1)
            it.catch_up.answer(failed(0, error))
            it.catch_up.answer(session_id=0)
        it.timers.advance(SETTINGS.backoff_ms - 1)
        assert not it.catch_up.asked
        it.timers.advance(1)
        assert [each.partition for each in it.catch_up.partitions] == [0]

    run_follower(tmp_path, test)


@pytest.mark.parametrize("error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE])
def test_error_of_a_partition_backs_off_until_the_metadata_changes(
    tmp_path: Path, error: ErrorCode
) -> None:
    async def test(it: Follower) -> None:
        partition, other = it.partition(0), it.partition(1)
        it.follow_in_sync(partition, other)
        it.catch_up.answer(session_id=0)
        it.in_sync.answer(failed(0, error))
        assert it.in_sync.forgotten == [0]
        it.timers.advance(SETTINGS.backoff_ms - 1)
        assert not it.catch_up.asked
        it.follow(partition, epoch=6)
        assert it.catch_up.partitions[0].current_leader_epoch == 6

    run_follower(tmp_path, test)


# --- sessions and connections ---


@pytest.mark.parametrize(
    ("error", "closed"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_refused_session_is_followed_by_a_full_request(
    tmp_path: Path, error: ErrorCode, closed: int
) -> None:
    async def test(it: Follower) -> None:
        it.follow_in_sync(*(it.partition(each) for each in range(3)))
        it.in_sync.answer()
        assert it.in_sync.partitions == []
        it.in_sync.answer(error=error, session_id=0)
        fetch = it.in_sync.fetch
        assert (fetch.session_id, fetch.session_epoch) == (closed, 0)
        assert [each.partition for each in it.in_sync.partitions] == [0, 1, 2]
        it.in_sync.answer(error=error, session_id=0)
        assert not it.in_sync.asked, "the second error in a row delays the next request"
        it.timers.advance(SETTINGS.backoff_ms)
        assert len(it.in_sync.partitions) == 3

    run_follower(tmp_path, test)


def test_leader_without_room_for_a_session_gets_full_requests(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        it.follow_in_sync(*(it.partition(each) for each in range(3)))
        for _ in range(3):
            assert it.in_sync.fetch.session_epoch == 0
            assert len(it.in_sync.partitions) == 3
            it.in_sync.answer(session_id=0)

    run_follower(tmp_path, test)


def test_lost_connection_begins_a_new_session_after_a_growing_delay(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        it.in_sync.answer()
        delays = []
        for _ in range(7):
            it.in_sync.lose()
            waited = 0
            while not it.in_sync.asked:
                it.timers.advance(1)
                waited += 1
            delays.append(waited)
            assert (it.in_sync.fetch.session_id, it.in_sync.fetch.session_epoch) == (7, 0)
        assert delays == [50, 100, 200, 400, 800, 1_000, 1_000]
        it.in_sync.answer()
        it.in_sync.lose()
        it.timers.advance(50)
        assert it.in_sync.asked, "a response ends the growth of the delay"

    run_follower(tmp_path, test)


@pytest.mark.parametrize("kind", ["error", "diverging epoch"])
def test_records_beside_an_error_or_a_diverging_epoch_are_not_appended(
    tmp_path: Path, kind: str
) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        append(partition.log, [(2, 4)])
        it.follow(partition)
        response = records(0, batches(4, 1), high_watermark=5)
        if kind == "error":
            response.error_code = int(ErrorCode.UNKNOWN_LEADER_EPOCH)
        else:
            response.diverging_epoch = EpochEndOffset(2, 3)
        it.catch_up.answer(response)
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (4, 0)
        if kind == "error":
            it.catch_up.answer(session_id=0)
            it.timers.advance(SETTINGS.backoff_ms)
            assert it.catch_up.partitions[0].fetch_offset == 4
        else:
            assert (await after_truncation(it)).fetch_offset == 3

    run_follower(tmp_path, test)


@pytest.mark.parametrize("kind", ["session", "partition", "topic"])
def test_response_that_does_not_belong_to_the_session_costs_the_connection(
    tmp_path: Path, kind: str
) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        it.in_sync.answer()
        channel = it.in_sync
        if kind == "session":
            channel.answer(records(0, batches(0, 1)), session_id=8)
        elif kind == "partition":
            channel.answer(records(1, batches(0, 1)))
        else:
            channel.answer(records(0, batches(0, 1)), topic_id=ZERO_UUID)
        assert channel.closed
        assert partition.log.log_end_offset == 0
        it.timers.advance(50)
        assert it.in_sync is not channel
        assert it.in_sync.partitions[0].fetch_offset == 0

    run_follower(tmp_path, test)


def test_each_connection_waits_for_its_own_delay(tmp_path: Path) -> None:
    """An earlier wake, or another reason to fetch, does not shorten it."""

    async def test(it: Follower) -> None:
        first, second, failing = it.partition(0), it.partition(1), it.partition(2)
        it.follow_in_sync(first)
        it.catch_up.answer(session_id=0)
        it.follow(failing)
        it.catch_up.answer(failed(2, ErrorCode.UNKNOWN_LEADER_EPOCH))
        it.catch_up.answer(session_id=0)
        for _ in range(3):  # the next delays are 50, 100 and 200 ms
            it.in_sync.lose()
            it.timers.advance(200)
        it.in_sync.lose()
        it.follow(second)
        it.catch_up.lose()
        assert not it.in_sync.asked, "its delay is 400 ms"
        it.timers.advance(50)
        assert it.catch_up.asked
        assert not it.in_sync.asked
        it.timers.advance(349)
        assert not it.in_sync.asked
        it.timers.advance(1)
        assert it.in_sync.asked

    run_follower(tmp_path, test)


def test_repeated_invalid_response_has_a_growing_delay_and_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(it: Follower) -> None:
        it.follow_in_sync(it.partition())
        it.in_sync.answer()
        for delay_ms in (50, 100, 200):
            channel = it.in_sync
            channel.answer(nothing(7))  # it was not requested
            assert channel.closed
            it.timers.advance(delay_ms - 1)
            assert channel is [each for each in it.channels if each.purpose == "in-sync"][-1]
            it.timers.advance(1)
            assert it.in_sync.asked

    with caplog.at_level(logging.DEBUG):
        run_follower(tmp_path, test)
    levels = [each.levelname for each in caplog.records if "a fetch from broker" in each.message]
    assert levels == ["WARNING", "DEBUG", "DEBUG"]


def test_leader_with_a_new_address_gets_a_new_connection(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        it.follow_in_sync(it.partition())
        old = it.in_sync
        del it.brokers[LEADER]
        old.lose()
        assert old.closed
        it.timers.advance(SETTINGS.backoff_ms)  # the address is not known
        it.brokers[LEADER] = registration(9)
        it.timers.advance(SETTINGS.backoff_ms)
        assert it.channel("in-sync", "broker-9").partitions

    run_follower(tmp_path, test)


def test_fetcher_without_partitions_closes_its_connections(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        it.follow(partition, epoch=6, leader=3)
        assert all(each.closed for each in it.channels if each.address[0] == "broker-1")
        it.fetchers.unfollow([partition.topic_partition])
        assert all(each.closed for each in it.channels)
        assert it.timers.armed == 0, "the end of a connection is not an error"
        it.timers.advance(100_000)
        assert it.timers.armed == 0

    run_follower(tmp_path, test)


def test_stopped_follower_has_no_open_connection_and_no_timer(tmp_path: Path) -> None:
    async def test(it: Follower) -> None:
        in_sync, lost, failing = it.partition(0), it.partition(1), it.partition(2)
        it.follow_in_sync(in_sync)
        it.catch_up.answer(session_id=0)
        it.follow(lost, failing)
        it.catch_up.answer(
            failed(1, ErrorCode.OFFSET_OUT_OF_RANGE), failed(2, ErrorCode.UNKNOWN_LEADER_EPOCH)
        )
        await until(lambda: bool(it.control.asked))
        assert {each.purpose for each in it.channels} == {"in-sync", "catch-up", "control"}
        assert it.timers.armed == 1
        await it.fetchers.stop()
        assert all(each.closed for each in it.channels)
        assert it.timers.armed == 0

    run_follower(tmp_path, test)


# --- the log ---


def test_io_error_stops_the_partition(tmp_path: Path) -> None:
    files = FaultyFiles()

    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        files.fail_pwrite = OSError(errno.EIO, "I/O error")
        it.in_sync.answer(records(0, batches(0, 1)))
        assert partition.error is ErrorCode.KAFKA_STORAGE_ERROR
        it.timers.advance(100_000)
        named = [each for channel in it.channels for each in channel.asked]
        assert all(not each.request.topics for each in named)

    run_follower(tmp_path, test, files=files)


def test_full_disk_backs_off(tmp_path: Path) -> None:
    files = FaultyFiles()

    async def test(it: Follower) -> None:
        partition = it.partition()
        it.follow_in_sync(partition)
        it.in_sync.answer(records(0, batches(0, 1)))
        files.space_left = 0
        it.in_sync.answer(records(0, batches(1, 1)))
        assert partition.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        files.space_left = None
        it.catch_up.answer(session_id=0)
        it.timers.advance(SETTINGS.backoff_ms)
        it.catch_up.answer(records(0, batches(1, 1), high_watermark=2))
        assert bytes_of(partition.log) == batches(0, 2)

    run_follower(tmp_path, test, files=files)
