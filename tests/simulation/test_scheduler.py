from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from tests.simulation.event_loop import SimulatedClock, SimulatedLoop
from tests.simulation.executors import SimulatedExecutors, Threads
from tests.simulation.scheduler import MILLISECOND, SECOND, Scheduler


def loop_of(scheduler: Scheduler, drift: float = 0.0) -> SimulatedLoop:
    return SimulatedLoop(scheduler, "process", SimulatedClock(scheduler, drift=drift))


def test_events_run_in_the_order_of_time_and_then_of_scheduling() -> None:
    scheduler, ran = Scheduler(1), list[str]()
    scheduler.after(20, ran.append, "late")
    scheduler.after(10, ran.append, "first")
    scheduler.after(10, ran.append, "second")
    scheduler.after(5, ran.append, "cancelled").cancel()
    while scheduler.step():
        pass
    assert ran == ["first", "second", "late"]
    assert scheduler.now_us == 20


def test_run_until_ends_at_the_moment_or_at_the_condition() -> None:
    scheduler, ran = Scheduler(1), list[int]()
    for at in (10, 20, 30):
        scheduler.at(at, ran.append, at)
    assert scheduler.run_until(25) is False
    assert (ran, scheduler.now_us) == ([10, 20], 25)
    assert scheduler.run_until(100, lambda: bool(ran[2:])) is True
    assert scheduler.now_us == 30


def test_streams_of_random_numbers_depend_on_seed_and_name_only() -> None:
    first, second = Scheduler(7), Scheduler(7)
    first.stream("other").random()
    assert first.stream("disk").random() == second.stream("disk").random()
    assert first.stream("disk").random() != first.stream("network").random()
    assert first.stream("disk").random() != Scheduler(8).stream("disk").random()


def test_the_trace_hashes_every_line_and_keeps_the_last_ones() -> None:
    first, second, third = Scheduler(1), Scheduler(1), Scheduler(1)
    for number in range(2_500):
        first.note(f"line {number}")
        second.note(f"line {number}")
        third.note(f"line {number if number != 3 else 'other'}")
    assert first.trace.digest() == second.trace.digest() != third.trace.digest()
    assert first.trace.tail()[-1] == "0 line 2499"
    assert first.trace.count == 2_500


def test_a_loop_runs_coroutines_in_virtual_time() -> None:
    scheduler = Scheduler(1)
    loop = loop_of(scheduler)
    ended = list[float]()

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)
        assert asyncio.get_running_loop() is loop
        ended.append(round(loop.time(), 2))

    loop.create_task(sleep(5))
    loop.create_task(sleep(1))
    scheduler.run_until(10 * SECOND)
    assert ended == [1.0, 5.0]


def test_a_fast_clock_ends_its_delays_early() -> None:
    scheduler = Scheduler(1)
    loop = loop_of(scheduler, drift=0.01)
    ended = list[int]()
    loop.call_later(10, lambda: ended.append(scheduler.now_us))
    scheduler.run_until(20 * SECOND)
    assert 9_900_000 <= ended[0] < 9_910_000
    assert loop.time() == pytest.approx(20.2)


def test_callbacks_run_in_order_and_later_ones_wait_for_the_next_step() -> None:
    scheduler = Scheduler(1)
    loop = loop_of(scheduler)
    ran, steps = list[str](), list[list[str]]()
    loop.on_step = lambda: steps.append(list(ran))
    loop.call_soon(lambda: (ran.append("a"), loop.call_soon(ran.append, "c")))
    loop.call_soon(ran.append, "b")
    scheduler.run_until(SECOND)
    assert steps == [["a", "b"], ["a", "b", "c"]]


def test_a_paused_loop_runs_its_timers_when_it_continues() -> None:
    scheduler = Scheduler(1)
    loop = loop_of(scheduler)
    ran = list[str]()
    loop.call_later(1, ran.append, "timer")
    loop.pause()
    scheduler.run_until(5 * SECOND)
    assert not ran
    loop.resume()
    scheduler.run_until(6 * SECOND)
    assert ran == ["timer"]


def test_a_killed_loop_runs_nothing() -> None:
    scheduler = Scheduler(1)
    loop = loop_of(scheduler)
    ran = list[str]()
    loop.call_later(1, ran.append, "timer")
    loop.call_soon(ran.append, "now")
    loop.kill()
    loop.call_soon(ran.append, "later")
    scheduler.run_until(5 * SECOND)
    assert not ran


def test_a_loop_collects_the_errors_that_nothing_handles() -> None:
    scheduler = Scheduler(1)
    loop = loop_of(scheduler)
    loop.call_soon(lambda: 1 / 0)
    scheduler.run_until(SECOND)
    assert "ZeroDivisionError" in loop.failures[0]


class Work:
    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.loop = loop_of(self.scheduler)
        self.threads = Threads(self.scheduler, self.loop, self.scheduler.stream("threads"))
        self.pool = SimulatedExecutors(self.threads).pool(2, "pool")
        self.ran: list[int] = []

    def submit(self, number: int) -> Future[int]:
        def call() -> int:
            assert self.threads.running
            self.ran.append(number)
            return number

        return self.pool.submit(call)


def test_calls_of_a_pool_run_later_and_reach_the_loop() -> None:
    work = Work()
    results = list[int]()

    async def use() -> None:
        for _ in range(3):
            results.append(await work.loop.run_in_executor(work.pool, lambda: 5))
        try:
            await work.loop.run_in_executor(work.pool, lambda: 1 // 0)
        except ZeroDivisionError:
            results.append(-1)

    work.loop.create_task(use())
    assert not results
    work.scheduler.run_until(5 * SECOND)
    assert results == [5, 5, 5, -1]
    assert not work.loop.failures


def test_a_pool_limits_its_calls_and_starts_them_at_random_moments() -> None:
    orders = set()
    for seed in range(20):
        work = Work(seed)
        for number in range(6):
            work.submit(number)
        work.scheduler.run_until(5 * SECOND)
        assert sorted(work.ran) == list(range(6))
        orders.add(tuple(work.ran))
    assert len(orders) > 3


def test_a_pool_has_ended_after_its_last_call() -> None:
    work = Work()
    first = work.submit(1)
    work.pool.shutdown(wait=False)
    with pytest.raises(RuntimeError):
        work.submit(2)
    assert not work.pool.ended.done()
    work.scheduler.run_until(SECOND)
    assert work.pool.ended.done()
    assert first.result() == 1


def test_shutdown_cancels_the_calls_that_have_not_started() -> None:
    work = Work()
    futures = [work.submit(number) for number in range(5)]
    work.pool.shutdown(wait=False, cancel_futures=True)
    work.scheduler.run_until(SECOND)
    assert [future.cancelled() for future in futures] == [False, False, True, True, True]


def test_the_event_loop_goes_on_while_a_call_waits_for_the_disk() -> None:
    work = Work()
    seen = list[str]()

    def call() -> None:
        seen.append("before")
        work.threads.wait(300 * MILLISECOND)
        seen.append("after")

    def of_loop() -> None:
        assert not work.threads.running
        seen.append("loop")

    future = work.pool.submit(call)
    second = work.submit(2)
    work.loop.call_later(0.25, of_loop)
    work.scheduler.run_until(250 * MILLISECOND, lambda: bool(seen))
    assert seen == ["before", "loop", "after"]
    assert not work.ran or work.ran == [2], "another call of the process runs before or after"
    work.scheduler.run_until(SECOND)
    assert future.done()
    assert second.done()


def test_a_call_that_waits_while_its_process_is_paused_continues_after_the_pause() -> None:
    work = Work()
    ended = list[int]()

    def call() -> None:
        work.threads.wait(10 * MILLISECOND)
        ended.append(work.scheduler.now_us)

    work.pool.submit(call)
    work.scheduler.at(5 * MILLISECOND, work.loop.pause)
    work.scheduler.at(800 * MILLISECOND, work.loop.resume)
    work.scheduler.run_until(SECOND)
    assert ended
    assert ended[0] >= 800 * MILLISECOND or ended[0] < 12 * MILLISECOND


def test_calls_of_a_paused_process_wait_and_calls_of_a_killed_one_never_run() -> None:
    work = Work()
    work.submit(1)
    work.loop.pause()
    work.scheduler.run_until(SECOND)
    assert not work.ran
    work.loop.resume()
    work.threads.resumed()
    work.scheduler.run_until(2 * SECOND)
    assert work.ran == [1]
    work.submit(2)
    work.loop.kill()
    work.scheduler.run_until(3 * SECOND)
    assert work.ran == [1]


def test_a_call_that_ran_before_the_kill_reports_nothing() -> None:
    reported = 0
    for seed in range(30):
        work = Work(seed)
        future = work.submit(1)
        while not work.ran:
            work.scheduler.step()
        work.loop.kill()
        work.scheduler.run_until(SECOND)
        reported += future.done()
    assert reported == 0
