"""Work that is shared between threads and the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.offloading import Work, WorkRunner, offloaded
from tests.helpers.work import run_here


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def slices(count: int, seen: list[str], name: str = "") -> Work[str]:
    for number in range(count):
        seen.append(f"{name}{number}")
        yield
    return name


def test_a_call_runs_in_a_thread_and_the_slices_on_the_loop(executor: ThreadPoolExecutor) -> None:
    def work() -> Work[tuple[str, str, str]]:
        first = threading.current_thread().name
        called = yield from offloaded(lambda: threading.current_thread().name)
        yield
        return first, called, threading.current_thread().name

    async def run() -> tuple[str, str, str]:
        return await WorkRunner(executor, 1, asyncio.Lock()).run(work())

    first, called, last = asyncio.run(run())
    assert first == last == threading.current_thread().name
    assert called.startswith("ThreadPoolExecutor")


def test_an_error_of_a_call_is_raised_at_the_yield(executor: ThreadPoolExecutor) -> None:
    def failing() -> None:
        raise OSError("disk")

    def work() -> Work[str]:
        try:
            yield from offloaded(failing)
        except OSError as error:
            return str(error)

    async def run() -> str:
        return await WorkRunner(executor, 1, asyncio.Lock()).run(work())

    assert asyncio.run(run()) == run_here(work()) == "disk"


def test_other_tasks_run_after_each_slice_for_any_number_of_works(
    executor: ThreadPoolExecutor,
) -> None:
    async def run() -> list[int]:
        lock = asyncio.Lock()
        runners = [WorkRunner(executor, 2, lock), WorkRunner(executor, 2, lock)]
        seen: list[str] = []
        in_each_iteration: list[int] = []

        async def count() -> None:
            while True:
                before = len(seen)
                await asyncio.sleep(0)
                in_each_iteration.append(len(seen) - before)

        counter = asyncio.create_task(count())
        works = (runner.run(slices(20, seen, name)) for name in "ab" for runner in runners)
        assert await asyncio.gather(*works) == ["a", "a", "b", "b"]
        counter.cancel()
        assert len(seen) == 80
        return in_each_iteration

    assert max(asyncio.run(run())) == 1


def test_a_runner_that_pauses_waits_between_two_slices_and_nowhere_else(
    executor: ThreadPoolExecutor,
) -> None:
    def work() -> Work[None]:
        yield
        yield
        yield from offloaded(lambda: None)

    pauses: list[str] = []

    async def pause() -> None:
        pauses.append("begun")
        await asyncio.sleep(0)
        pauses.append("ended")

    async def run() -> None:
        await WorkRunner(executor, 1, asyncio.Lock(), pause).run(work())

    asyncio.run(run())
    assert pauses == ["begun", "ended"] * 2


def test_no_more_works_than_allowed_are_in_progress_and_the_others_wait_in_order(
    executor: ThreadPoolExecutor,
) -> None:
    async def run() -> list[str]:
        runner = WorkRunner(executor, 1, asyncio.Lock())
        seen: list[str] = []
        await asyncio.gather(*(runner.run(slices(3, seen, name)) for name in "abc"))
        return seen

    assert asyncio.run(run()) == [f"{name}{number}" for name in "abc" for number in range(3)]


def test_a_cancelled_work_is_closed_and_the_next_one_starts(
    executor: ThreadPoolExecutor,
) -> None:
    ended: list[bool] = []

    def endless() -> Work[None]:
        try:
            while True:
                yield
        finally:
            ended.append(True)

    async def run() -> str:
        runner = WorkRunner(executor, 1, asyncio.Lock())
        first = asyncio.create_task(runner.run(endless()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = asyncio.create_task(runner.run(slices(2, [], "next")))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(run()) == "next"
    assert ended == [True]
