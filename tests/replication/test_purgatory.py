"""Waiting requests end exactly once: by bytes, by a reason, by time, or because nobody listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.errors import ErrorCode
from odradek.replication.purgatory import DelayedProduce, FetchPurgatory


class FakePartition:
    def __init__(self) -> None:
        self.fetch_waiters: set[Any] = set()
        self.stable_waiters: set[Any] = set()
        self.produce_waiters: list[tuple[int, Any]] = []

    def appended(self, size_bytes: int) -> None:
        for waiter in tuple(self.fetch_waiters):
            waiter.appended(size_bytes)


def run(test: Callable[[FetchPurgatory], Any], waiting_max: int = 10) -> None:
    async def main() -> None:
        await test(FetchPurgatory(asyncio.get_running_loop(), waiting_max))

    asyncio.run(main())


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_fetch_ends_when_enough_bytes_came() -> None:
    async def check(purgatory: FetchPurgatory) -> None:
        partition, ended = FakePartition(), []
        purgatory.watch([partition], 100, 60_000, lambda: ended.append(1))  # type: ignore[list-item]
        partition.appended(60)
        await turns()
        assert not ended
        partition.appended(60)
        partition.appended(60)
        await turns()
        assert ended == [1]
        assert not partition.fetch_waiters
        assert not purgatory.waiting

    run(check)


def test_fetch_ends_when_time_is_up() -> None:
    async def check(purgatory: FetchPurgatory) -> None:
        ended = asyncio.Event()
        purgatory.watch([FakePartition()], 1, 1, ended.set)  # type: ignore[list-item]
        await asyncio.wait_for(ended.wait(), 120)

    run(check)


def test_cancelled_fetch_is_never_called() -> None:
    async def check(purgatory: FetchPurgatory) -> None:
        partition, ended = FakePartition(), []
        delayed = purgatory.watch([partition], 1, 60_000, lambda: ended.append(1))  # type: ignore[list-item]
        delayed.wake()
        delayed.cancel()
        await turns()
        assert not ended
        assert not partition.fetch_waiters

    run(check)


def test_fetches_beyond_the_limit_are_answered_at_once() -> None:
    async def check(purgatory: FetchPurgatory) -> None:
        ended: list[int] = []
        for number in range(3):
            purgatory.watch([FakePartition()], 1, 60_000, lambda n=number: ended.append(n))  # type: ignore[misc,list-item]
        await turns()
        assert ended == [2]
        purgatory.end_all()
        assert sorted(ended) == [0, 1, 2]

    run(check, waiting_max=2)


def test_after_the_end_nothing_waits() -> None:
    async def check(purgatory: FetchPurgatory) -> None:
        ended: list[int] = []
        purgatory.end_all()
        purgatory.watch([FakePartition()], 1, 60_000, lambda: ended.append(1))  # type: ignore[list-item]
        await turns()
        assert ended == [1]

    run(check)


def produce(
    partitions: list[FakePartition], timeout_ms: int | None = None
) -> tuple[DelayedProduce, list[Any]]:
    ended: list[Any] = []
    delayed = DelayedProduce(
        asyncio.get_running_loop(),
        dict.fromkeys(partitions, 1),  # type: ignore[misc]
        timeout_ms,
        ended.append,
    )
    return delayed, ended


def test_produce_ends_when_all_partitions_committed_or_failed() -> None:
    async def check(_: FetchPurgatory) -> None:
        first, second = FakePartition(), FakePartition()
        delayed, ended = produce([first, second])
        delayed.committed(first)  # type: ignore[arg-type]
        assert not ended
        delayed.failed(second, ErrorCode.KAFKA_STORAGE_ERROR)  # type: ignore[arg-type]
        assert ended == [{second: ErrorCode.KAFKA_STORAGE_ERROR}]
        delayed.expire()
        assert len(ended) == 1

    run(check)


def test_produce_names_what_has_not_committed_in_time() -> None:
    async def check(_: FetchPurgatory) -> None:
        first, second = FakePartition(), FakePartition()
        delayed, ended = produce([first, second], timeout_ms=60_000)
        delayed.committed(first)  # type: ignore[arg-type]
        delayed.expire()
        assert ended == [{second: ErrorCode.REQUEST_TIMED_OUT}]
        assert not second.produce_waiters

    run(check)
