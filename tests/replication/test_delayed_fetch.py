"""Fetches that respond immediately, and fetches that wait for more data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from odradek.environment.clock import ManualClock
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode
from odradek.log.log_read import LogReadInfo
from odradek.replication.delayed_fetch import UNTIMED_MAX, UNWATCHED_PER_SLICE, FetchParams, fetch
from odradek.replication.fetch_data import FetchIsolation, FetchPartitionData
from odradek.replication.partition import Partition
from odradek.replication.purgatory import Purgatory
from odradek.result_tasks import wait
from odradek.results import Result
from odradek.slicing import ELEMENTS_PER_SLICE, sliced
from tests.helpers.time_slices import count_slices
from tests.replication.builders import has_delayed_operations
from tests.replication.fakes import BATCH, HeldExecutor, ListLog, partition_of

LONG = 2 * ELEMENTS_PER_SLICE + 1


@dataclass
class Target:
    partition: int
    fetch_offset: int = 0
    topic: str = "t"
    max_bytes: int = 1_000
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


class Manager:
    """Some partitions, and the purgatory of fetches."""

    def __init__(self, count: int) -> None:
        self.logs = [ListLog() for _ in range(count)]
        self.partitions = [partition_of(log, index=at) for at, log in enumerate(self.logs)]
        self.fetches = Purgatory(asyncio.get_running_loop(), LoopTimers(), 2)
        self.clock = ManualClock()
        self.is_out_of_files = False

    def find(self, topic: str, index: int) -> Partition | None:
        return self.partitions[index] if index < len(self.partitions) else None

    def unknown_code(self, topic: str, _: int) -> ErrorCode:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def fetch(self, *targets: Target, **options: Any) -> Result[list[FetchPartitionData]]:
        defaults: dict[str, Any] = {"min_bytes": 150, "max_bytes": 10_000, "max_wait_ms": 600_000}
        isolation = options.pop("isolation", FetchIsolation.HIGH_WATERMARK)
        params = FetchParams(isolation, -1, **(defaults | options))
        requested = targets or tuple(Target(at) for at in range(len(self.partitions)))
        return sliced(fetch(self, params, requested))  # type: ignore[arg-type]

    def read_in_thread(self, read: Callable[[], LogReadInfo]) -> asyncio.Future[LogReadInfo]:
        """Return the result immediately. It is used in a later iteration of the loop."""
        done = asyncio.get_running_loop().create_future()
        done.set_result(read())
        return done

    @property
    def is_idle(self) -> bool:
        return not self.fetches.waiting and not any(
            has_delayed_operations(each) for each in self.partitions
        )


def run(test: Callable[[Manager], Awaitable[None]], partitions: int = 2) -> None:
    async def main() -> None:
        await test(Manager(partitions))

    asyncio.run(main())


async def iterations(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Run other slices until the condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never held")


def sizes(data: list[FetchPartitionData]) -> list[int]:
    return [0 if each.region is None else each.region.length for each in data]


def test_fetch_with_enough_to_read_is_done_immediately() -> None:
    async def check(manager: Manager) -> None:
        for partition in manager.partitions:
            partition.append(BATCH, 1, 0)
        result = manager.fetch()
        assert result.completed
        assert sizes(result.value) == [100, 100]
        assert manager.is_idle

    run(check)


def test_fetch_of_many_partitions_stops_watching_them_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slices = count_slices(monkeypatch)

    async def check(manager: Manager) -> None:
        result = manager.fetch()
        await until(lambda: result.executed)
        slices.clear()
        result.cancel()
        assert not manager.fetches.waiting
        watched = [each for each in manager.partitions if has_delayed_operations(each)]
        assert len(watched) == UNWATCHED_PER_SLICE + 1
        watched[-1].append(BATCH, 1, 0)
        await until(lambda: manager.is_idle)
        assert len(slices) == 2
        assert not result.completed

    run(check, partitions=2 * UNWATCHED_PER_SLICE + 1)


def test_slow_reads_end_the_time_slice_before_the_limit_of_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example reads that open the files of their logs."""
    slices = count_slices(monkeypatch)

    async def check(manager: Manager) -> None:
        slow_reads(monkeypatch, manager)
        data = await wait(manager.fetch(min_bytes=0))
        assert len(data) == 5 * UNTIMED_MAX
        # The clock is read when the number of partitions left in a slice is a multiple.
        assert len(slices) + 1 == len(data) // (ELEMENTS_PER_SLICE % UNTIMED_MAX)
        assert manager.is_idle

    run(check, partitions=5 * UNTIMED_MAX)


@pytest.mark.parametrize("isolation", [FetchIsolation.HIGH_WATERMARK, FetchIsolation.COMMITTED])
@pytest.mark.parametrize("appended_to", [0, UNTIMED_MAX, 2 * UNTIMED_MAX])
def test_fetch_counts_records_appended_between_two_slices_of_slow_reads(
    monkeypatch: pytest.MonkeyPatch, isolation: FetchIsolation, appended_to: int
) -> None:
    async def check(manager: Manager) -> None:
        slow_reads(monkeypatch, manager)
        result = manager.fetch(isolation=isolation, min_bytes=100)
        while not manager.logs[UNTIMED_MAX].reads:
            assert not result.executed
            await asyncio.sleep(0)
        manager.partitions[appended_to].append(BATCH, 1, 0)
        async with asyncio.timeout(120):
            assert sum(sizes(await wait(result))) == 100
        assert manager.is_idle

    run(check, partitions=3 * UNTIMED_MAX)


def test_fetch_counts_records_appended_between_slow_reads_after_a_read_from_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check(manager: Manager) -> None:
        manager.logs[1].is_cold = True
        slow_reads(monkeypatch, manager)
        result = manager.fetch(min_bytes=100)
        while not manager.logs[-1].reads:
            assert not result.executed
            await asyncio.sleep(0)
        manager.partitions[0].append(BATCH, 1, 0)
        async with asyncio.timeout(120):
            assert sum(sizes(await wait(result))) == 100
        assert manager.is_idle

    run(check, partitions=3 * UNTIMED_MAX)


def slow_reads(monkeypatch: pytest.MonkeyPatch, manager: Manager) -> None:
    """Let each read take a millisecond."""
    read = Partition.read

    def slow(partition: Partition, *arguments: Any, **named: Any) -> FetchPartitionData:
        manager.clock.advance(1)
        return read(partition, *arguments, **named)

    monkeypatch.setattr(Partition, "read", slow)


@pytest.mark.parametrize("isolation", [FetchIsolation.HIGH_WATERMARK, FetchIsolation.COMMITTED])
def test_fetch_reads_again_when_enough_was_appended(isolation: FetchIsolation) -> None:
    async def check(manager: Manager) -> None:
        first, second = manager.partitions
        first.append(BATCH, 1, 0)
        result = manager.fetch(isolation=isolation)
        assert result.executed
        assert not result.completed
        assert all(region.closed for region in manager.logs[0].regions)
        reads = len(manager.logs[0].reads)
        await iterations()
        assert len(manager.logs[0].reads) == reads
        second.append(BATCH, 1, 0)
        second.append(BATCH, 1, 0)
        data = await wait(result)
        assert sizes(data) == [100, 200]
        assert len(manager.logs[0].reads) == reads + 1
        assert manager.is_idle

    run(check)


def test_fetch_reads_again_when_a_partition_is_stopped() -> None:
    async def check(manager: Manager) -> None:
        result = manager.fetch()
        manager.partitions[1].stop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        first, second = await wait(result)
        assert (first.error, second.error) == (
            ErrorCode.NONE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )
        assert second.current_leader == (1, 5)
        assert manager.is_idle

    run(check)


def test_cold_read_of_a_deleted_topic_is_not_the_data_of_a_new_one_of_its_name() -> None:
    async def check(manager: Manager) -> None:
        manager.partitions[0].append(BATCH, 1, 0)
        manager.logs[0].is_cold = True
        result = manager.fetch(min_bytes=0)
        assert not result.done
        manager.partitions[0].stop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        manager.partitions[0] = partition_of(ListLog())
        (data,) = await wait(result)
        assert (sizes([data]), data.high_watermark) == ([0], 0)

    run(check, partitions=1)


@pytest.mark.parametrize("isolation", [FetchIsolation.HIGH_WATERMARK, FetchIsolation.COMMITTED])
def test_fetch_counts_records_appended_during_its_read_from_the_disk(
    isolation: FetchIsolation,
) -> None:
    async def check(manager: Manager) -> None:
        first, second = manager.partitions
        second.append(BATCH, 1, 0)
        manager.logs[1].is_cold = True
        result = manager.fetch(isolation=isolation)
        assert not result.executed
        first.append(BATCH, 1, 0)
        async with asyncio.timeout(120):
            assert sizes(await wait(result)) == [100, 100]
        assert manager.is_idle

    run(check)


def test_fetch_does_not_wait_for_a_partition_stopped_while_it_read_from_the_disk() -> None:
    async def check(manager: Manager) -> None:
        first, second = manager.partitions
        second.append(BATCH, 1, 0)
        manager.logs[1].is_cold = True
        result = manager.fetch()
        first.stop(ErrorCode.KAFKA_STORAGE_ERROR)
        async with asyncio.timeout(120):
            data = await wait(result)
        assert [each.error for each in data] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
        assert manager.is_idle

    run(check)


def test_records_appended_while_a_thread_reads_their_partition_end_the_wait() -> None:
    async def check(manager: Manager) -> None:
        (partition,) = manager.partitions
        partition.append(BATCH, 1, 0)
        manager.logs[0].is_cold = True
        result = manager.fetch()
        partition.append(BATCH, 1, 0)
        async with asyncio.timeout(120):
            assert sizes(await wait(result)) == [200]
        assert manager.is_idle

    run(check, 1)


def test_fetch_that_may_not_wait_reads_from_the_disk_once() -> None:
    async def check(manager: Manager) -> None:
        (partition,) = manager.partitions
        partition.append(BATCH, 1, 0)
        manager.logs[0].is_cold = True
        result = manager.fetch(max_wait_ms=0)
        partition.append(BATCH, 1, 0)
        async with asyncio.timeout(120):
            assert sizes(await wait(result)) == [100]
        assert manager.is_idle

    run(check, 1)


def test_fetch_is_done_when_its_time_is_up() -> None:
    async def check(manager: Manager) -> None:
        async with asyncio.timeout(120):
            assert sizes(await wait(manager.fetch(max_wait_ms=1))) == [0, 0]
        assert manager.is_idle

    run(check)


@pytest.mark.parametrize(
    ("targets", "options"),
    [
        ((Target(9),), {}),
        ((Target(0, leader_epoch=4),), {}),
        ((Target(0),), {"max_wait_ms": 0}),
        ((Target(0),), {"min_bytes": 0}),
    ],
    ids=["unknown partition", "fenced epoch", "no wait", "no minimum"],
)
def test_fetch_does_not_wait(targets: tuple[Target, ...], options: dict[str, int]) -> None:
    async def check(manager: Manager) -> None:
        assert manager.fetch(*targets, **options).completed
        assert manager.is_idle

    run(check)


def test_cancelled_fetch_is_removed_from_purgatory_and_partitions() -> None:
    async def check(manager: Manager) -> None:
        result = manager.fetch()
        assert not manager.is_idle
        manager.partitions[0].append(BATCH, 1, 0)
        manager.partitions[0].append(BATCH, 1, 0)
        result.cancel()
        await iterations()
        assert not result.done
        assert manager.is_idle

    run(check)


def test_beyond_the_limit_the_oldest_fetch_reads_again_immediately() -> None:
    async def check(manager: Manager) -> None:
        results = [manager.fetch() for _ in range(3)]
        assert sizes(await wait(results[0])) == [0, 0]
        assert [result.completed for result in results] == [True, False, False]
        manager.fetches.end_all()
        assert all(result.completed for result in results)
        assert manager.is_idle

    run(check)


def test_append_between_two_slices_of_the_first_read_counts() -> None:
    async def check(manager: Manager) -> None:
        result = manager.fetch()
        assert not result.executed
        for _ in range(2):
            manager.partitions[0].append(BATCH, 1, 0)
        assert sum(sizes(await wait(result))) == 200
        assert manager.is_idle

    run(check, LONG)


def test_timeout_during_the_first_read_completes_the_fetch() -> None:
    async def check(manager: Manager) -> None:
        result = manager.fetch()
        manager.fetches.end_all()
        assert sum(sizes(await wait(result))) == 0
        assert all(len(log.reads) == 2 for log in manager.logs)
        assert manager.is_idle

    run(check, LONG)


def test_partition_that_is_on_the_disk_is_read_by_a_thread() -> None:
    async def check(manager: Manager) -> None:
        manager.logs[1].is_cold = True
        for partition in manager.partitions:
            partition.append(BATCH, 1, 0)
        result = manager.fetch()
        assert not result.executed
        assert sizes(await wait(result)) == [100, 100]
        assert manager.is_idle

    run(check)


@pytest.mark.parametrize("steps", [0, 3], ids=["not started", "waiting"])
def test_cancelled_fetch_cancels_a_read_that_no_thread_has_started(steps: int) -> None:
    async def check(manager: Manager) -> None:
        manager.partitions[0].append(BATCH, 1, 0)
        manager.logs[0].is_cold = True
        threads = HeldExecutor()
        loop = asyncio.get_running_loop()
        manager.read_in_thread = partial(loop.run_in_executor, threads)  # type: ignore[method-assign]
        result = manager.fetch(min_bytes=0)
        await iterations(steps)
        result.cancel()
        await until(lambda: result.done)
        ((read, _),) = threads.held
        await until(read.cancelled)
        assert manager.is_idle

    run(check, partitions=1)


def test_read_of_a_log_that_was_truncated_in_the_meantime_is_repeated() -> None:
    async def check(manager: Manager) -> None:
        log = manager.logs[1]
        log.is_cold = True
        for partition in manager.partitions:
            partition.append(BATCH, 1, 0)
        result = manager.fetch()
        log.truncations += 1
        assert sizes(await wait(result)) == [100, 100]
        assert len(log.reads) == 2

    run(check)


@pytest.mark.parametrize("reads", [1, 2], ids=["first read", "last read"])
def test_fetch_cancelled_between_two_slices_closes_its_regions(reads: int) -> None:
    async def check(manager: Manager) -> None:
        result = manager.fetch(min_bytes=1 << 20)
        if reads == 2:
            await until(lambda: result.executed)
            manager.fetches.end_all()
        for partition in manager.partitions:
            partition.append(BATCH, 1, 0)
        await until(lambda: len(manager.logs[ELEMENTS_PER_SLICE].reads) == reads)
        result.cancel()
        await iterations(5)
        regions = [region for log in manager.logs for region in log.regions]
        assert regions
        assert all(region.closed for region in regions)
        assert manager.is_idle

    run(check, LONG + 1)


def test_fetch_takes_no_second_file_when_files_are_short_and_does_not_wait() -> None:
    async def check(manager: Manager) -> None:
        for partition in manager.partitions:
            partition.append(BATCH, 1, 0)
        manager.is_out_of_files = True
        result = manager.fetch(min_bytes=250)
        assert sizes(result.value) == [100, 0, 0]
        assert [data.high_watermark for data in result.value] == [1, 1, 1]
        assert manager.is_idle
        manager.is_out_of_files = False
        assert sizes(manager.fetch(min_bytes=250).value) == [100, 100, 100]

    run(check, partitions=3)


def test_delayed_fetch_whose_last_read_fails_ends_with_the_error() -> None:
    async def check(manager: Manager) -> None:
        result = manager.fetch()
        assert not result.done
        manager.logs[1].failure = MemoryError("no memory")
        for partition in manager.partitions:
            partition.append(BATCH, 1, 0)
        await until(lambda: result.done)
        with pytest.raises(MemoryError):
            result.get()
        assert manager.is_idle

    run(check)
