"""The transaction coordinator: durability before responses, markers, restarts, time, errors."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from odradek import slicing
from odradek.coordinator.coordinator_result import CoordinatorResult
from odradek.coordinator.runtime import COMMIT_TIMEOUT_MS
from odradek.coordinator.transaction.completion import SORTED_PER_SLICE, _sorted_runs
from odradek.coordinator.transaction.transaction_decisions import Identity, TransactionResponse
from odradek.coordinator.transaction.transaction_metadata import EPOCH_EXHAUSTED
from odradek.coordinator.transaction.transaction_shard import TransactionShard
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicName, TopicPartition
from odradek.metadata.topics import TRANSACTION_STATE
from odradek.result_tasks import wait
from odradek.slicing import ELEMENTS_PER_SLICE
from tests.coordinator.group.on_disk import image_of, topic
from tests.coordinator.transaction.transactions_on_disk import (
    A0,
    A1,
    STATE,
    STATE_ID,
    OnDisk,
    coordinator,
    settled,
    until,
)
from tests.helpers.event_loop import on_loop

E = ErrorCode


async def begun(disk: OnDisk) -> None:
    assert await disk.init() == (E.NONE, 1, 0)
    assert await disk.add() is E.NONE


async def ending_on_a_slow_disk(disk: OnDisk) -> asyncio.Future[TransactionResponse]:
    """Begin a transaction and send EndTxn, whose record waits in `disk.flushes`."""
    await begun(disk)
    disk.flushes = []
    ending = asyncio.ensure_future(disk.end())
    await asyncio.sleep(0)
    return ending


@on_loop
async def test_response_to_a_commit_precedes_its_markers(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        assert (await disk.end()).code is E.NONE
        await asyncio.sleep(0)
        assert (disk.state(), disk.markers) == ("PrepareCommit", [])
        assert (await disk.end()).code is E.CONCURRENT_TRANSACTIONS
        await disk.completed()
        assert disk.markers == [(1, 0, 0, True, [A0, A1], 1)]
        assert disk.state() == "CompleteCommit"
        assert (await disk.end()).code is E.NONE


@on_loop
async def test_abort_writes_abort_markers(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        await disk.end(committed=False)
        await disk.completed()
        assert disk.markers == [(1, 0, 0, False, [A0, A1], 1)]
        assert disk.state() == "CompleteAbort"


@on_loop
async def test_markers_of_version_2_have_the_incremented_epoch(tmp_path: Path) -> None:
    async with coordinator(tmp_path, level=2) as disk:
        await begun(disk)
        assert await disk.end(version=2) == (E.NONE, 1, 1)
        await disk.completed()
        assert disk.markers == [(1, 1, 0, True, [A0, A1], 2)]


@on_loop
async def test_markers_have_the_leader_epoch_in_which_the_shard_was_loaded(tmp_path: Path) -> None:
    """With this epoch, partitions refuse the markers of an earlier coordinator. A coordinator that
    was deposed knows the epoch of its successor from its metadata."""
    async with coordinator(tmp_path, leader_epoch=4) as disk:
        await begun(disk)
        state = disk.image.topics_by_name[TRANSACTION_STATE]
        newest = replace(state, partitions=(replace(state.partitions[0], leader_epoch=5),))
        others = {**disk.image.topics_by_name, newest.name: newest}
        disk.image = replace(disk.image, topics_by_name=others)
        await disk.end()
        await disk.completed()
        assert disk.markers == [(1, 0, 4, True, [A0, A1], 1)]


@on_loop
async def test_prepared_transactions_are_completed_after_an_election_without_a_request(
    tmp_path: Path,
) -> None:
    names = [f"x{number}" for number in range(30)]
    async with coordinator(tmp_path) as disk:
        for name in names:
            await disk.init(name)
        for name in names:
            current = disk.transactions.describe(name)
            who = (current.producer_id, current.producer_epoch)
            await disk.add(who, A0, name=name)
            await disk.end(who, name=name)
        disk.leads = False
        disk.transactions.leadership_changed(0)
        disk.open.set()
        await disk.transactions.completions.done()
        assert disk.markers == [], "the next coordinator completes them"
        disk.leads, disk.leader_epoch = True, 2
        disk.transactions.leadership_changed(0)
        await disk.transactions.runtime.loads_done()
        await until(lambda: all(disk.state(name) == "CompleteCommit" for name in names))
        assert {each.coordinator_epoch for each in disk.markers} == {2}
        assert len(disk.markers) == len(names)


@on_loop
async def test_completions_of_a_dropped_shard_are_cancelled_in_time_slices(tmp_path: Path) -> None:
    count = 3 * ELEMENTS_PER_SLICE
    async with coordinator(tmp_path) as disk:
        for number in range(count):
            name = f"x{number}"
            response = await disk.init(name)
            who = (response.producer_id, response.producer_epoch)
            await disk.add(who, A0, name=name)
            await disk.end(who, name=name)
        await asyncio.sleep(0)
        left = [len(asyncio.all_tasks())]
        disk.leads = False
        disk.transactions.leadership_changed(0)
        for _ in range(10):
            await asyncio.sleep(0)
            left.append(len(asyncio.all_tasks()))
        ended = [before - after for before, after in pairwise(left)]
        # The task of the slices begins and ends in them too.
        assert max(ended) <= ELEMENTS_PER_SLICE + 1
        await disk.transactions.completions.done()
        assert len(asyncio.all_tasks()) <= left[0] - count


@on_loop
async def test_abort_without_a_transaction_needs_no_marker(tmp_path: Path) -> None:
    async with coordinator(tmp_path, level=2) as disk:
        await disk.init()
        assert await disk.end(committed=False, version=2) == (E.NONE, 1, 1)
        await disk.completed()
        assert (disk.state(), disk.markers) == ("CompleteAbort", [])


@pytest.mark.parametrize("committed", [True, False])
@on_loop
async def test_prepared_transaction_is_completed_after_a_restart(
    tmp_path: Path, committed: bool
) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        await disk.end(committed=committed)
    async with coordinator(tmp_path) as disk:
        assert (await disk.end(committed=committed)).code is E.CONCURRENT_TRANSACTIONS
        await disk.completed()
        assert disk.markers == [(1, 0, 0, committed, [A0, A1], 1)]
        assert disk.state() == ("CompleteCommit" if committed else "CompleteAbort")
        assert (await disk.end(committed=committed)).code is E.NONE


@on_loop
async def test_open_transaction_continues_after_a_restart(tmp_path: Path) -> None:
    """In redpanda#6018 a begin that was in memory only was lost, and acknowledged records too."""
    async with coordinator(tmp_path) as disk:
        await begun(disk)
    async with coordinator(tmp_path) as disk:
        assert await disk.add((1, 0), TopicPartition("a", 2)) is E.NONE
        assert (await disk.end()).code is E.NONE


@on_loop
async def test_loaded_state_is_the_written_state(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        await disk.init("y", 5)
        await disk.end()
        await disk.completed()
        before = {each.transactional_id: each for each in disk.transactions.all_transactions()}
    async with coordinator(tmp_path) as disk:
        after = {each.transactional_id: each for each in disk.transactions.all_transactions()}
        assert after == before


# -- waiting for the disk --------------------------------------------------------------------------


@on_loop
async def test_no_response_precedes_the_commit_of_its_record(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        ending = await ending_on_a_slow_disk(disk)
        assert not ending.done()
        assert (await disk.end()).code is E.CONCURRENT_TRANSACTIONS
        assert await disk.add() is E.CONCURRENT_TRANSACTIONS
        disk.open.set()
        await asyncio.sleep(0)
        assert disk.markers == [], "no marker before Prepare is durable"
        flushes, disk.flushes = disk.flushes, None
        flushes[0].set_result(None)
        assert (await ending).code is E.NONE
        await disk.completed()
        assert disk.state() == "CompleteCommit"


@on_loop
async def test_descriptions_show_what_is_committed(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        disk.flushes = []
        first = asyncio.ensure_future(disk.init())
        await asyncio.sleep(0)
        assert disk.transactions.all_transactions() == []
        with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
            disk.state()
        disk.flushes[0].set_result(None)
        assert (await first).code is E.NONE
        adding = asyncio.ensure_future(disk.add())
        await asyncio.sleep(0)
        assert disk.state() == "Empty"
        assert [each.pending for each in disk.transactions.all_transactions()] == [False]
        disk.flushes[1].set_result(None)
        assert await adding is E.NONE
        assert disk.state() == "Ongoing"


@on_loop
async def test_prepare_that_commits_late_gets_an_error_and_is_completed(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as disk:
        ending = await ending_on_a_slow_disk(disk)
        disk.timers.advance(COMMIT_TIMEOUT_MS)
        assert (await ending).code is E.COORDINATOR_NOT_AVAILABLE
        assert (await disk.end()).code is E.CONCURRENT_TRANSACTIONS, "its record is in the log"
        assert disk.state() == "Ongoing"
        disk.open.set()
        await asyncio.sleep(0)
        assert disk.markers == []
        flushes, disk.flushes = disk.flushes, None
        flushes[0].set_result(None)
        await until(lambda: disk.state() == "CompleteCommit")
        assert (await disk.end()).code is E.NONE


@on_loop
async def test_complete_that_is_late_is_not_written_twice(tmp_path: Path) -> None:
    """A second Complete could end the next transaction, which begins after the first Complete."""
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        assert (await disk.end()).code is E.NONE
        disk.flushes = []
        disk.open.set()
        flushes = disk.flushes
        await until(lambda: bool(flushes))
        end = disk.log(STATE).log_end_offset
        disk.timers.advance(COMMIT_TIMEOUT_MS)
        await disk.completed()
        assert disk.log(STATE).log_end_offset == end
        assert (await disk.init()).code is E.CONCURRENT_TRANSACTIONS
        flushes[0].set_result(None)
        await until(lambda: disk.state() == "CompleteCommit")


@on_loop
async def test_uncommitted_partition_is_not_verified(tmp_path: Path) -> None:
    """Records must not be written in a transaction whose begin may be lost (redpanda#6018)."""
    async with coordinator(tmp_path) as disk:
        await disk.init()
        disk.flushes = []
        adding = disk.transactions.verify("x", 1, 0, [A0], add=True)
        assert not adding.done
        assert verify(disk, [A0]) == {A0: E.CONCURRENT_TRANSACTIONS}
        disk.flushes[0].set_result(None)
        assert await wait(adding) == {A0: E.NONE}
        assert verify(disk, [A0]) == {A0: E.NONE}


@on_loop
async def test_partition_is_verified_while_another_one_is_added(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await disk.init()
        await disk.add((1, 0), A0)
        disk.flushes = []
        adding = disk.transactions.add_partitions(Identity("x", 1, 0), frozenset({A1}))
        assert verify(disk, [A0]) == {A0: E.NONE}
        assert verify(disk, [A0], producer_epoch=1) == {A0: E.PRODUCER_FENCED}
        for each in ([A1], [A0, A1]):
            assert verify(disk, each) == dict.fromkeys(each, E.CONCURRENT_TRANSACTIONS)
        disk.flushes[0].set_result(None)
        assert (await settled(adding)).code is E.NONE
        ending = disk.transactions.end_transaction(Identity("x", 1, 0), True)
        assert verify(disk, [A0]) == {A0: E.CONCURRENT_TRANSACTIONS}
        disk.flushes[1].set_result(None)
        assert (await settled(ending)).code is E.NONE


@on_loop
async def test_disconnected_client_does_not_stop_its_request(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        ending = await ending_on_a_slow_disk(disk)
        ending.cancel()
        await asyncio.sleep(0)
        flushes, disk.flushes = disk.flushes, None
        flushes[0].set_result(None)
        disk.open.set()
        await until(lambda: disk.state() == "CompleteCommit")


@on_loop
async def test_transaction_prepared_before_a_stop_is_completed_after_the_next_start(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as disk:
        ending = await ending_on_a_slow_disk(disk)
        disk.transactions.stop()
        assert (await ending).code is E.NOT_COORDINATOR
        disk.flushes[0].set_result(None)
        await disk.completed()
        assert disk.markers == []
    async with coordinator(tmp_path) as disk:
        await disk.completed()
        assert disk.state() == "CompleteCommit"


@on_loop
async def test_failed_disk_takes_the_coordinator_out_of_service(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        ending = await ending_on_a_slow_disk(disk)
        disk.leads = False
        disk.flushes[0].set_exception(KafkaError(E.KAFKA_STORAGE_ERROR))
        assert (await ending).code is E.NOT_COORDINATOR
        assert (await disk.init()).code is E.NOT_COORDINATOR
        assert disk.markers == []


@pytest.mark.parametrize(
    ("error", "returned"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
@on_loop
async def test_decision_that_cannot_be_appended_changes_nothing(
    tmp_path: Path, error: ErrorCode, returned: ErrorCode
) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        disk.append_error = error
        assert (await disk.end()).code is returned
        assert (await disk.init()).code is returned, "and a failed fence changes no epoch"
        assert disk.state() == "Ongoing"
        disk.append_error = None
        assert (await disk.end()).code is E.NONE


@on_loop
async def test_completion_is_appended_when_the_log_accepts_it_again(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        await disk.end()
        disk.append_error = E.NOT_ENOUGH_REPLICAS
        disk.open.set()
        await until(lambda: bool(disk.markers))
        await asyncio.sleep(0)
        assert disk.state() == "PrepareCommit"
        disk.append_error = None
        await disk.completed()
        assert disk.state() == "CompleteCommit"
        assert len(disk.markers) == 1


# -- markers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_LEADER_OR_FOLLOWER,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
@on_loop
async def test_marker_is_tried_again_where_it_failed(tmp_path: Path, code: ErrorCode) -> None:
    async with coordinator(tmp_path) as disk:
        disk.refusals[A1] = [code, code]
        await begun(disk)
        await disk.end()
        await disk.completed()
        assert [each.partitions for each in disk.markers] == [[A0, A1], [A1], [A1]]
        assert disk.state() == "CompleteCommit"


@on_loop
async def test_partition_with_a_newer_epoch_does_not_delay_the_others(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        disk.refusals[A1] = [E.INVALID_PRODUCER_EPOCH]
        await begun(disk)
        await disk.end()
        await disk.completed()
        assert len(disk.markers) == 1
        assert disk.state() == "CompleteCommit"


@on_loop
async def test_coordinator_with_a_fenced_marker_leaves_the_transaction_to_its_successor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with coordinator(tmp_path) as disk:
        disk.refusals[A0] = [E.TRANSACTION_COORDINATOR_FENCED]
        disk.refusals[A1] = [E.NOT_LEADER_OR_FOLLOWER]
        await begun(disk)
        await disk.end()
        await disk.completed()
        assert len(disk.markers) == 1
        assert disk.state() == "PrepareCommit"
    fenced = [each for each in caplog.records if "COORDINATOR_FENCED" in each.getMessage()]
    assert [each.levelname for each in fenced] == ["INFO"]
    assert "left to the newer coordinator" in fenced[0].getMessage()


@on_loop
async def test_deleted_topic_does_not_block_the_transaction(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        disk.topics()
        await disk.end()
        await disk.completed()
        assert (disk.state(), disk.markers) == ("CompleteCommit", [])


@on_loop
async def test_partitions_of_a_long_transaction_are_found_in_time_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is deleted between two slices gets no further marker."""
    count = ELEMENTS_PER_SLICE
    async with coordinator(tmp_path) as disk:
        names = {each: topic(each, each.encode() * 16, count) for each in ("a", "b", "c")}
        disk.image = image_of(topic(TRANSACTION_STATE, STATE_ID), *names.values())
        all_partitions = [TopicPartition(each, index) for each in names for index in range(count)]
        await disk.init()
        assert await disk.add((1, 0), *all_partitions) is E.NONE
        end_slice, slices = slicing.end_slice, [0]

        async def ended() -> None:
            slices[0] += 1
            disk.image = image_of(topic(TRANSACTION_STATE, STATE_ID), names["a"], names["b"])
            await end_slice()

        monkeypatch.setattr(slicing, "end_slice", ended)
        assert (await disk.end()).code is E.NONE
        await disk.completed()
        assert slices[0] >= len(names)
        assert [each.partitions for each in disk.markers] == [all_partitions[: 2 * count]]
        assert disk.state() == "CompleteCommit"


def test_the_partitions_of_a_long_transaction_are_sorted_in_time_slices() -> None:
    count = 2 * SORTED_PER_SLICE + 1
    partitions = frozenset(TopicPartition(TopicName(f"t{n}"), n % 7) for n in range(count))
    work, slices = _sorted_runs(partitions), 0
    while True:
        try:
            next(work)
        except StopIteration as ended:
            runs = ended.value
            break
        slices += 1
    assert slices == 3
    assert max(map(len, runs)) == SORTED_PER_SLICE
    assert sorted(each for run in runs for each in run) == sorted(partitions)
    assert all(run == sorted(run) for run in runs)


@on_loop
async def test_topic_deleted_while_its_marker_is_refused_does_not_block_the_transaction(
    tmp_path: Path,
) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        disk.refusals[A0] = [E.UNKNOWN_TOPIC_OR_PARTITION] * 1_000_000
        disk.open.set()
        await disk.end()
        await until(lambda: bool(disk.markers))
        disk.topics("b")
        await disk.completed()
        assert disk.state() == "CompleteCommit"


@on_loop
async def test_deleted_topic_does_not_block_a_restarted_coordinator(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        await disk.end()
    async with coordinator(tmp_path) as disk:
        disk.topics()
        await disk.completed()
        assert disk.state() == "CompleteCommit"


@on_loop
async def test_loss_of_the_leadership_ends_the_present_completions(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        await disk.end()
        disk.leads = False
        disk.transactions.leadership_changed(0)
        await asyncio.sleep(0)
        await disk.completed()
        assert disk.markers == []


# -- time ------------------------------------------------------------------------------------------


@on_loop
async def test_open_transaction_times_out_by_the_clock(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        disk.clock.advance(60_000)
        disk.transactions.abort_timed_out()
        assert disk.state() == "Ongoing"
        disk.clock.advance(1)
        disk.transactions.abort_timed_out()
        assert disk.state() == "PrepareAbort"
        assert (await disk.end()).code is E.PRODUCER_FENCED
        await disk.completed()
        assert disk.markers == [(1, 1, 0, False, [A0, A1], 1)]
        assert await disk.add() is E.PRODUCER_FENCED
        assert await disk.init() == (E.NONE, 1, 2)


@on_loop
async def test_time_while_the_coordinator_is_stopped_counts(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        clock = disk.clock
    clock.advance(60_001)
    async with coordinator(tmp_path, clock=clock) as disk:
        disk.transactions.abort_timed_out()
        assert disk.state() == "PrepareAbort"


@on_loop
async def test_time_out_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        disk.clock.advance(60_001)
        disk.append_error = E.NOT_ENOUGH_REPLICAS
        disk.transactions.abort_timed_out()
        assert disk.state() == "Ongoing"
        disk.append_error = None
        disk.transactions.abort_timed_out()
        assert disk.transactions.describe("x").producer_epoch == 1, "one increment, not two"


@on_loop
async def test_time_out_at_the_last_epoch_waits_for_a_block_of_ids(tmp_path: Path) -> None:
    async with coordinator(tmp_path, level=2) as disk:
        await begun(disk)
        shard = disk.transactions.runtime.shard(0)
        use_last_epoch(shard)
        await disk.init("y")
        disk.clock.advance(60_001)
        disk.transactions.abort_timed_out()
        assert disk.state() == "Ongoing"
        await disk.completed()
        for _ in range(5):
            await asyncio.sleep(0)
        await disk.completed()
        assert disk.state() == "CompleteAbort"
        assert disk.transactions.describe("x").producer_id == 3


def use_last_epoch(shard: TransactionShard) -> None:
    from dataclasses import replace

    shard.adopt(replace(shard.transactions["x"], producer_epoch=EPOCH_EXHAUSTED))


@on_loop
async def test_idle_ids_expire_permanently(tmp_path: Path) -> None:
    async with coordinator(tmp_path, transactional_id_expiration_ms=1000) as disk:
        await begun(disk)
        await disk.init("idle")
        disk.clock.advance(999)
        disk.transactions.remove_expired()
        assert len(disk.transactions.all_transactions()) == 2
        disk.clock.advance(1)
        disk.transactions.remove_expired()
        assert [each.transactional_id for each in disk.transactions.all_transactions()] == ["x"]
        assert await disk.add((2, 0), name="idle") is E.INVALID_PRODUCER_ID_MAPPING
    async with coordinator(tmp_path) as disk:
        assert [each.transactional_id for each in disk.transactions.all_transactions()] == ["x"]
        assert await disk.init("idle") == (E.NONE, 1, 0)


@on_loop
async def test_thousand_ids_expire_in_batches(tmp_path: Path) -> None:
    async with coordinator(tmp_path, transactional_id_expiration_ms=1000) as disk:
        for number in range(1001):
            assert (await disk.init(f"id-{number}")).code is E.NONE
        batches = disk.log(STATE).log_end_offset
        disk.clock.advance(1000)
        disk.transactions.remove_expired()
        assert disk.transactions.all_transactions() == []
        assert disk.log(STATE).log_end_offset == batches + 1001


# -- requests --------------------------------------------------------------------------------------


def verify(disk: OnDisk, partitions: list[TopicPartition], **options: Any) -> Any:
    who = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "add": False, **options}
    return disk.transactions.verify(partitions=partitions, **who).get()


@on_loop
async def test_verify_returns_a_code_for_each_partition(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        other = TopicPartition("b", 0)
        await disk.init()
        assert await disk.add((1, 0), A0) is E.NONE
        assert verify(disk, [A0, other]) == {A0: E.NONE, other: E.TRANSACTION_ABORTABLE}
        assert verify(disk, [A0], producer_epoch=1) == {A0: E.PRODUCER_FENCED}
        assert verify(disk, [A0], producer_id=9) == {A0: E.INVALID_PRODUCER_ID_MAPPING}
        for add in (True, False):
            assert verify(disk, [A0], transactional_id="", add=add) == {A0: E.INVALID_REQUEST}


@on_loop
async def test_verify_with_add_begins_the_transaction(tmp_path: Path) -> None:
    async with coordinator(tmp_path, level=2) as disk:
        await disk.init()
        assert verify(disk, [A0], add=True) == {A0: E.NONE}
        assert disk.transactions.describe("x").partitions == {A0}
        assert disk.transactions.describe("x").client_transaction_version == 2
        assert verify(disk, [A0], add=True, producer_epoch=1) == {A0: E.PRODUCER_FENCED}


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
@on_loop
async def test_timeout_of_a_producer_is_bounded(tmp_path: Path, timeout_ms: int) -> None:
    async with coordinator(tmp_path) as disk:
        assert (await disk.init(timeout_ms=timeout_ms)).code is E.INVALID_TRANSACTION_TIMEOUT
        assert disk.transactions.all_transactions() == []
        assert (await disk.init(timeout_ms=900_000)).code is E.NONE


@on_loop
async def test_empty_transactional_id_is_invalid(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        assert (await disk.init("")).code is E.INVALID_REQUEST
        assert await disk.add(name="") is E.INVALID_REQUEST
        assert (await disk.end(name="")).code is E.INVALID_REQUEST
        with pytest.raises(KafkaError, match="INVALID_REQUEST"):
            disk.transactions.describe("")


@on_loop
async def test_request_waits_for_a_new_block_of_producer_ids(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        ids = [(await disk.init(name)).producer_id for name in "abcde"]
        assert ids == [1, 2, 3, 4, 5]


@on_loop
async def test_two_requests_that_wait_for_a_block_do_not_share_an_identity(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await disk.init("a")
        await disk.init("b")
        outcomes = await asyncio.gather(disk.init("c"), disk.init("c"))
        assert sorted(each.producer_epoch for each in outcomes) == [0, 1]
        assert len({each.producer_id for each in outcomes}) == 1


@on_loop
async def test_stopped_coordinator_is_not_available(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        disk.transactions.stop()
        assert (await disk.init()).code is E.COORDINATOR_NOT_AVAILABLE
        assert await disk.add() is E.COORDINATOR_NOT_AVAILABLE
        assert verify(disk, [A0]) == {A0: E.COORDINATOR_NOT_AVAILABLE}
        for ask in (lambda: disk.transactions.describe("x"), disk.transactions.all_transactions):
            with pytest.raises(KafkaError, match="COORDINATOR_NOT_AVAILABLE"):
                ask()


@on_loop
async def test_loading_coordinator_decides_nothing(tmp_path: Path) -> None:
    """In redpanda#5090 a leader that had not applied all records yet did not know an open
    transaction and the partitions of its producer."""
    async with coordinator(tmp_path) as disk:
        await begun(disk)
    async with coordinator(tmp_path, loaded=False) as disk:
        loading = E.COORDINATOR_LOAD_IN_PROGRESS
        assert (await disk.init()).code is loading
        assert await disk.add() is loading
        assert (await disk.end()).code is loading
        assert verify(disk, [A0, A1]) == {A0: loading, A1: loading}
        for ask in (lambda: disk.transactions.describe("x"), disk.transactions.all_transactions):
            with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
                ask()
        await disk.transactions.runtime.loads_done()
        assert verify(disk, [A0, A1]) == {A0: E.NONE, A1: E.NONE}
        assert (await disk.end()).code is E.NONE


@on_loop
async def test_id_that_is_not_known(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
            disk.transactions.describe("nobody")


@on_loop
async def test_record_with_an_unknown_state_is_skipped(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        await begun(disk)
        shard = disk.transactions.runtime.shard(0)
        from odradek.coordinator.transaction.transaction_metadata import to_record

        record = to_record(shard.transactions["x"], 1)
        record.value.transaction_status = 99
        disk.transactions.runtime.write(0, CoordinatorResult([record], None), lambda code: None)
        assert disk.state() == "Ongoing"


@on_loop
async def test_responses_without_writes_are_completed_at_once(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as disk:
        assert await settled(disk.transactions.verify("x", 1, 0, [], add=False)) == {}
