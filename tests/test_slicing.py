"""Long work in time slices, which other work on the event loop runs between."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from itertools import pairwise

import pytest

from odradek.result_tasks import wait
from odradek.results import Abandoned, PendingResult, Result
from odradek.slicing import begin, sliced


def slices(count: int, done: list[int], result: Result[str]) -> Generator[None, None, Result[str]]:
    try:
        for number in range(count):
            done.append(number)
            if number < count - 1:
                yield
    finally:
        done.append(-1)
    return result


def test_work_of_one_slice_runs_without_an_event_loop() -> None:
    done: list[int] = []
    assert sliced(slices(1, done, Result("end"))).get() == "end"
    assert done == [0, -1]


def test_other_work_runs_between_the_slices() -> None:
    async def test() -> None:
        done: list[int] = []
        result = sliced(slices(3, done, Result("end")))
        assert (done, result.executed) == ([0], False)
        seen = [len(done)]
        for _ in range(10):
            await asyncio.sleep(0)
            seen.append(len(done))
        assert result.get() == "end"
        assert done == [0, 1, 2, -1]
        assert all(after - before <= 2 for before, after in pairwise(seen))
        assert {1, 2, 4} <= set(seen)

    asyncio.run(test())


def test_a_result_returned_by_the_work_is_followed() -> None:
    async def test() -> None:
        response: PendingResult[str] = PendingResult()
        result = sliced(slices(2, [], response))
        for _ in range(10):
            await asyncio.sleep(0)
        assert result.executed
        assert not result.done
        response.complete("late")
        assert await wait(result) == "late"

    asyncio.run(test())


def test_cancel_closes_the_work_between_two_slices() -> None:
    async def test() -> None:
        done: list[int] = []
        result = sliced(slices(1_000, done, Result("end")))
        for _ in range(5):
            await asyncio.sleep(0)
        result.cancel()
        with pytest.raises(Abandoned):
            await wait(result)
        assert done[-1] == -1
        assert len(done) < 10

    asyncio.run(test())


def test_work_in_the_background_begins_immediately_and_logs_a_defect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps: list[int] = []

    def work(slices: int) -> Generator[None, None, None]:
        for number in range(slices):
            steps.append(number)
            yield
        raise ValueError("a defect")

    async def test() -> None:
        begin(work(2), "the work")
        assert steps == [0]
        await asyncio.sleep(0.01)
        assert steps == [0, 1]
        begin(work(0), "work of one slice")

    asyncio.run(test())
    assert [each.split(".")[0] for each in caplog.messages] == [
        "bug in the work",
        "bug in work of one slice",
    ]
