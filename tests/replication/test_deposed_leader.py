"""Leaders that are deposed, truncated and elected again while their requests and flushes run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from odradek.config.log_config import LogConfig
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode
from odradek.log.truncation import truncate_to
from odradek.replication import record_append
from odradek.replication.partition import ACKS_ALL, ACKS_LEADER, Partition
from odradek.replication.record_append import AppendEntry, AppendResult
from odradek.result_tasks import wait
from odradek.results import Result
from odradek.slicing import sliced
from testkit.requests import batch
from tests.replication.cluster_fakes import EPOCH, LEADER, A, B, Target, replication_of
from tests.replication.fakes import HeldExecutor
from tests.replication.leader_broker import Broker, run_leader
from tests.replication.scripted_leader import batches

LONG_MS = 600_000


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    return partial(run_leader, tmp_path)


def entry(partition: int, records: int = 1) -> AppendEntry:
    values = [bytes(100)] * records
    return AppendEntry("t", partition, memoryview(batch(*values, timestamp_ms=0)))


def replace_records(broker: Broker, partition: Partition) -> None:
    """Truncate the log as a follower of A, append A's record, and be elected again."""
    broker.elect(6, A)
    truncate_to(partition.log, 0)
    other = memoryview(batches(0, 1, 6, b"other"))
    partition.log.append_as_follower(other, 6, now_ms=0)
    broker.elect(7)


def commit(partition: Partition) -> None:
    """Have both followers fetch from the log end."""
    log = partition.log
    end_offset = log.log_end_offset
    for replica in (A, B):
        target = Target(end_offset, 7, log.epochs.epoch_for(end_offset - 1))
        replication_of(partition).fetch(replica, EPOCH, target, 100, updates=True)
    assert log.high_watermark == end_offset


def codes(results: list[AppendResult]) -> list[ErrorCode]:
    return [ErrorCode.NONE if each.error is None else each.error.code for each in results]


async def end_flush(executor: HeldExecutor) -> None:
    """End the running flushes. Let the broker begin further ones, if they are due."""
    executor.release()
    for _ in range(10):
        await asyncio.sleep(0)


async def finish_appends(result: Result[list[AppendResult]]) -> None:
    executed = asyncio.Event()
    result.on_executed(executed.set)
    await executed.wait()


def test_r3_record_that_another_leader_replaced_between_two_slices_is_not_acknowledged(
    run: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_append, "ELEMENTS_PER_SLICE", 1)

    async def test(broker: Broker) -> None:
        partition = broker.manager.partition("t", 0)
        result = broker.manager.append_records([entry(0), entry(1)], ACKS_ALL, LONG_MS)
        assert partition.log.log_end_offset == 1 and not result.executed
        replace_records(broker, partition)
        await finish_appends(result)
        for at in range(2):
            if broker.manager.partition("t", at).log.log_end_offset:
                commit(broker.manager.partition("t", at))
        first, *_ = await wait(result)
        assert codes([first]) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert first.current_leader == (LEADER, 7)

    run(test, partitions=2)


def test_r3_record_of_another_path_that_was_replaced_between_two_slices_is_not_acknowledged(
    run: Callable[..., None],
) -> None:
    async def test(broker: Broker) -> None:
        first, second = (broker.manager.partition("t", at) for at in range(2))
        append = record_append.RecordAppend(broker.manager, 0, ACKS_ALL, LONG_MS, False)
        append.include(first, first.append(memoryview(batch(b"v", timestamp_ms=0)), ACKS_ALL, 0))
        replace_records(broker, first)
        result = sliced(append.in_slices([entry(1)], ManualClock()))
        commit(first)
        commit(second)
        assert codes(await wait(result)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]

    run(test, partitions=2)


def test_r3_record_that_another_leader_replaced_during_a_recompression_is_not_acknowledged(
    run: Callable[..., None],
) -> None:
    async def test(broker: Broker) -> None:
        partition, large = (broker.manager.partition("t", at) for at in range(2))
        result = broker.manager.append_records([entry(0), entry(1, 50_000)], ACKS_ALL, LONG_MS)
        assert partition.log.log_end_offset == 1 and not large.log.log_end_offset
        replace_records(broker, partition)
        await finish_appends(result)
        commit(partition)
        commit(large)
        assert codes(await wait(result)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]

    config = LogConfig(compression_type="gzip", max_message_bytes=100_000_000)
    run(test, partitions=2, config=config)


def test_flush_of_truncated_records_is_not_repeated(run: Callable[..., None]) -> None:
    executor = HeldExecutor()

    async def test(broker: Broker) -> None:
        partition = broker.manager.partition("t", 0)
        broker.append()
        broker.manager.start_flush(partition)
        await executor.asked.wait()
        broker.append()
        broker.elect(6, A)
        truncate_to(partition.log, 0)
        await end_flush(executor)
        assert not executor.held
        assert partition.flush_due_offset == 0

    run(test, executor=executor, config=LogConfig(flush_messages=1))


def test_r11_flush_of_an_earlier_leader_epoch_does_not_cover_later_records(
    run: Callable[..., None],
) -> None:
    executor = HeldExecutor()

    async def test(broker: Broker) -> None:
        partition = broker.manager.partition("t", 0)
        for _ in range(3):
            broker.append()
        broker.manager.start_flush(partition)
        await executor.asked.wait()
        broker.elect(6, A)
        truncate_to(partition.log, 0)
        broker.elect(7)
        result = broker.manager.append_records([entry(0)], ACKS_LEADER, LONG_MS)
        await end_flush(executor)
        assert not result.done and len(executor.held) == 1
        await end_flush(executor)
        assert codes(result.get()) == [ErrorCode.NONE]
        assert not executor.held

    run(test, executor=executor, config=LogConfig(flush_messages=1))


def test_flush_that_is_due_continues_in_the_next_epoch_of_the_same_leader(
    run: Callable[..., None],
) -> None:
    executor = HeldExecutor()

    async def test(broker: Broker) -> None:
        result = broker.manager.append_records([entry(0)], ACKS_LEADER, LONG_MS)
        await executor.asked.wait()
        broker.elect(6)
        await end_flush(executor)
        await end_flush(executor)
        assert codes(result.get()) == [ErrorCode.NONE]
        assert not executor.held

    run(test, executor=executor, config=LogConfig(flush_messages=1))
