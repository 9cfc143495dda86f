"""Delayed operations complete exactly once: by their condition, by time, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek.environment.clock import ManualClock
from odradek.environment.timers import LoopTimers
from odradek.replication.purgatory import (
    DEADLINE_TICK_MS,
    EXACT_BELOW_MS,
    EXPIRATIONS_PER_SLICE,
    Deadlines,
    DelayedOperation,
    Purgatory,
)
from tests.helpers.manual_timers import SteppedTimers


class Operation(DelayedOperation):
    """An operation that records its calls."""

    def __init__(self, purgatory: Purgatory) -> None:
        super().__init__()
        self.purgatory = purgatory
        self.holds = False
        self.calls: list[str] = []
        self.ended = asyncio.Event()

    def try_complete(self) -> bool:
        if self.holds:
            self.force_complete()
        return self.completed

    def on_expiration(self) -> None:
        self.calls.append("expired")

    def release(self) -> None:
        self.calls.append("released")
        self.purgatory.forget(self)

    def on_complete(self) -> None:
        self.calls.append("complete")
        self.ended.set()


def run(
    test: Callable[[Purgatory], Awaitable[None]],
    waiting_max: int = 10,
    partitions_max: int = 1_000,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await test(Purgatory(loop, LoopTimers(), waiting_max, partitions_max))

    asyncio.run(main())


async def iterations(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_operation_completes_once_when_its_condition_holds() -> None:
    async def check(purgatory: Purgatory) -> None:
        operation = Operation(purgatory)
        assert purgatory.watch(operation, 60_000)
        assert not operation.try_complete()
        operation.holds = True
        assert operation.try_complete()
        assert operation.try_complete()
        operation.expire()
        operation.cancel()
        assert operation.calls == ["released", "complete"]
        assert not purgatory.waiting

    run(check)


def test_operation_completes_when_its_time_is_up() -> None:
    async def check(purgatory: Purgatory) -> None:
        operation = Operation(purgatory)
        purgatory.watch(operation, 1)
        await asyncio.wait_for(operation.ended.wait(), 120)
        assert operation.calls == ["expired", "released", "complete"]

    run(check)


def test_cancelled_operation_never_completes() -> None:
    async def check(purgatory: Purgatory) -> None:
        operation = Operation(purgatory)
        purgatory.watch(operation, 60_000)
        timer = operation.timer
        operation.cancel()
        operation.holds = True
        assert operation.try_complete()
        operation.force_complete()
        operation.expire()
        assert operation.calls == ["released"]
        assert timer is not None
        assert timer.cancelled()

    run(check)


def test_beyond_the_limit_the_oldest_operation_completes() -> None:
    async def check(purgatory: Purgatory) -> None:
        operations = [Operation(purgatory) for _ in range(3)]
        assert all(purgatory.watch(each, 60_000) for each in operations)
        assert len(purgatory.waiting) == 2
        await iterations()
        assert [each.completed for each in operations] == [True, False, False]
        purgatory.end_all()
        assert all(each.calls == ["released", "complete"] for each in operations)
        assert purgatory.partitions == 0

    run(check, waiting_max=2)


def test_partitions_of_operations_that_wait_are_bounded() -> None:
    async def check(purgatory: Purgatory) -> None:
        operations = [Operation(purgatory) for _ in range(4)]
        sizes = [60, 40, 70, 101]
        watched = [
            purgatory.watch(each, 60_000, size)
            for each, size in zip(operations, sizes, strict=True)
        ]
        assert watched == [True, True, True, False]
        await iterations()
        assert [each.completed for each in operations] == [True, True, False, True]
        assert purgatory.partitions == 70
        operations[2].cancel()
        assert purgatory.partitions == 0

    run(check, partitions_max=100)


def test_after_end_all_no_operation_is_delayed() -> None:
    async def check(purgatory: Purgatory) -> None:
        purgatory.end_all()
        operation = Operation(purgatory)
        assert not purgatory.watch(operation, 60_000)
        await iterations()
        assert operation.calls == ["released", "complete"]

    run(check)


class TimedOperation(Operation):
    def release(self) -> None:
        self.calls.append("released")


def test_deadlines_share_a_timer_and_are_at_most_a_tick_late() -> None:
    async def check(purgatory: Purgatory) -> None:
        clock = ManualClock()
        timers = SteppedTimers(clock)
        deadlines = Deadlines(clock, timers)
        first, second, third = (TimedOperation(purgatory) for _ in range(3))
        deadlines.add(first, 30_000)
        deadlines.add(second, 30_000 + DEADLINE_TICK_MS - 1)
        deadlines.add(third, 30_000 + DEADLINE_TICK_MS)
        assert timers.armed == 2
        timers.advance(29_999)
        assert first.calls == []
        second.cancel()
        timers.advance(DEADLINE_TICK_MS + 1)
        assert (first.calls, second.calls) == (["expired", "released", "complete"], ["released"])
        assert third.calls == []
        timers.advance(DEADLINE_TICK_MS)
        assert third.calls == ["expired", "released", "complete"]

    run(check)


def test_short_deadline_is_exact() -> None:
    async def check(purgatory: Purgatory) -> None:
        clock = ManualClock()
        timers = SteppedTimers(clock)
        operation = TimedOperation(purgatory)
        Deadlines(clock, timers).add(operation, EXACT_BELOW_MS - 1)
        timers.advance(EXACT_BELOW_MS - 2)
        assert operation.calls == []
        timers.advance(1)
        assert operation.calls == ["expired", "released", "complete"]

    run(check)


def test_operations_with_one_deadline_expire_in_time_slices() -> None:
    async def check(purgatory: Purgatory) -> None:
        clock = ManualClock()
        timers = SteppedTimers(clock)
        deadlines = Deadlines(clock, timers)
        operations = [TimedOperation(purgatory) for _ in range(2 * EXPIRATIONS_PER_SLICE + 2)]
        for operation in operations:
            deadlines.add(operation, 30_000)
        timers.advance(30_000 + DEADLINE_TICK_MS)
        last = operations[-1]
        last.force_complete()  # between two slices: it does not expire
        expired = []
        for _ in range(4):
            expired.append(sum("expired" in each.calls for each in operations))
            await asyncio.sleep(0)
        slice_size = EXPIRATIONS_PER_SLICE
        assert expired == [slice_size, 2 * slice_size, 2 * slice_size + 1, 2 * slice_size + 1]
        assert last.calls == ["released", "complete"]

    run(check)
