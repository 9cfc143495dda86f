"""Coroutines as results, and results inside of coroutines."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.result_tasks import in_task, run, shielded, wait
from odradek.results import Abandoned, PendingResult, Result
from tests.helpers.futures import of_future


def run_loop(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_a_coroutine_is_executed_when_it_has_ended() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        response: PendingResult[int] = PendingResult()

        @in_task
        async def handle(value: int) -> Result[int]:
            await gate.wait()
            return response.then(lambda response: response + value)

        result = handle(1)
        await asyncio.sleep(0)
        assert not result.executed
        gate.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert result.executed
        assert not result.done
        response.complete(2)
        assert result.get() == 3

    run_loop(test())


def test_an_exception_of_the_coroutine_fails_the_result() -> None:
    async def failing() -> Result[int]:
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    async def test() -> None:
        with pytest.raises(KafkaError):
            await wait(run(failing()))

    run_loop(test())


@pytest.mark.parametrize("steps", [0, 1])
def test_cancel_ends_a_coroutine_that_executes(steps: int) -> None:
    async def test() -> None:
        ended: list[bool] = []

        async def endless() -> Result[int]:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append(True)
            return Result(1)

        result = run(endless())
        for _ in range(steps):
            await asyncio.sleep(0)
        result.cancel()
        with pytest.raises(Abandoned):
            await wait(result)
        assert ended == [True] * steps
        assert result.executed

    run_loop(test())


def test_cancel_after_the_coroutine_cancels_its_result() -> None:
    async def test() -> None:
        released: list[bool] = []
        response: PendingResult[int] = PendingResult(on_cancel=lambda: released.append(True))

        async def executed() -> Result[int]:
            return response

        result = run(executed())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert result.executed
        result.cancel()
        assert released

    run_loop(test())


def test_a_cancelled_task_cancels_the_result_that_it_waits_for() -> None:
    async def test() -> None:
        released: list[bool] = []
        result: PendingResult[int] = PendingResult(on_cancel=lambda: released.append(True))
        task = asyncio.ensure_future(wait(result))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert released
        result.complete(1)

    run_loop(test())


def test_a_value_that_is_known_is_not_waited_for() -> None:
    async def test() -> None:
        assert await wait(Result(5)) == 5

    run_loop(test())


@pytest.mark.parametrize("end", ["value", "error", "cancelled"])
def test_a_future_is_an_executed_result(end: str) -> None:
    async def test() -> None:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        result = of_future(future)
        assert (result.executed, result.done) == (True, False)
        if end == "value":
            future.set_result(1)
            assert await wait(result) == 1
        elif end == "error":
            future.set_exception(KafkaError(ErrorCode.INVALID_REQUEST))
            with pytest.raises(KafkaError):
                await wait(result)
        else:
            result.cancel()
            with pytest.raises(Abandoned):
                await wait(result)
            assert future.cancelled()

    run_loop(test())


def test_a_failure_after_the_caller_was_cancelled_is_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        work: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        caller = asyncio.ensure_future(shielded(work, "the work"))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert not work.done()
        work.set_exception(OSError("no space"))
        await asyncio.sleep(0)

    run_loop(test())
    gc.collect()
    assert caplog.messages == [
        "the work failed after its caller was cancelled: OSError('no space')"
    ]
    assert caplog.records[0].exc_info is None


def test_a_failure_that_the_caller_gets_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        work: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(work.set_exception, OSError("no space"))
        with pytest.raises(OSError, match="no space"):
            await shielded(work, "the work")

    run_loop(test())
    gc.collect()
    assert not caplog.messages


def test_shielded_work_that_was_cancelled_itself_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        work: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await shielded(work, "the work")
        await asyncio.sleep(0)

    run_loop(test())
    assert not caplog.messages
