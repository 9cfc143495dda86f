"""The event queue of the controller: order, results, cancelled callers, its limit and its end."""

from __future__ import annotations

import asyncio
import gc

import pytest

from odradek.controller import event_queue
from odradek.controller.event_queue import EventQueue
from odradek.errors import ErrorCode, KafkaError


def test_events_run_one_after_the_other_in_the_order_of_their_arrival() -> None:
    async def scenario() -> None:
        queue = EventQueue()
        steps: list[str] = []

        async def event(name: str) -> str:
            steps.append(f"{name} begins")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            steps.append(f"{name} ends")
            return name

        first, second = queue.append(lambda: event("a")), queue.append(lambda: event("b"))
        assert await second == "b"
        assert first.result() == "a"
        assert steps == ["a begins", "a ends", "b begins", "b ends"]
        assert await queue.run(lambda: event("c")) == "c"

    asyncio.run(scenario())


def test_an_event_that_fails_does_not_end_the_queue() -> None:
    async def scenario() -> None:
        queue = EventQueue()

        async def fail() -> None:
            raise ValueError("wrong")

        async def succeed() -> int:
            return 1

        failed, after = queue.append(fail), queue.append(succeed)
        assert await after == 1
        with pytest.raises(ValueError, match="wrong"):
            await failed

    asyncio.run(scenario())


def test_an_event_runs_to_its_end_if_its_caller_is_cancelled() -> None:
    async def scenario() -> None:
        queue = EventQueue()
        begun, ended = asyncio.Event(), asyncio.Event()

        async def event() -> None:
            begun.set()
            await asyncio.sleep(0)
            ended.set()

        caller = asyncio.create_task(queue.run(event))
        await begun.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await ended.wait()

    asyncio.run(scenario())


def test_close_waits_for_the_events_and_refuses_others() -> None:
    async def scenario() -> None:
        queue = EventQueue()
        ended: list[int] = []

        async def event(number: int) -> None:
            await asyncio.sleep(0)
            ended.append(number)

        for number in range(3):
            queue.append(lambda number=number: event(number))
        await queue.close()
        assert ended == [0, 1, 2]
        assert not queue.is_open
        with pytest.raises(KafkaError) as caught:
            await queue.run(lambda: event(4))
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        await queue.close()

    asyncio.run(scenario())


def test_a_full_queue_refuses_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_queue, "EVENTS_QUEUED_MAX", 2)

    async def scenario() -> None:
        queue = EventQueue()

        async def event() -> None:
            await asyncio.sleep(0)

        waiting = [queue.append(event) for _ in range(2)]
        with pytest.raises(KafkaError) as caught:
            queue.append(event)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        await asyncio.gather(*waiting)
        await queue.append(event)

    asyncio.run(scenario())


def test_an_event_that_is_cancelled_does_not_end_the_queue() -> None:
    async def scenario() -> None:
        queue = EventQueue()

        async def cancelled() -> None:
            raise asyncio.CancelledError  # a client of the store cancels its calls when it closes

        async def succeed() -> int:
            return 1

        failed, after = queue.append(cancelled), queue.append(succeed)
        assert await asyncio.wait_for(after, 5) == 1
        with pytest.raises(KafkaError) as raised:
            await failed
        assert raised.value.code is ErrorCode.NOT_CONTROLLER
        await queue.close()

    asyncio.run(scenario())


def test_the_failure_of_an_event_that_no_caller_awaits_is_one_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Garbage collection would report an exception that was not retrieved, with a traceback."""

    async def scenario() -> None:
        queue = EventQueue()
        begun = asyncio.Event()

        async def fail() -> None:
            begun.set()
            await asyncio.sleep(0)
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "deposed")

        async def fail_internally() -> None:
            raise ValueError("a defect")

        caller = asyncio.create_task(queue.run(fail))
        await begun.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        queue.append_internal(fail_internally)
        await queue.close()
        await asyncio.sleep(0)

    asyncio.run(scenario())
    gc.collect()
    assert [each.exc_info for each in caplog.records] == [None, None]
    of_request, internal = caplog.messages
    assert "failed after its caller was cancelled" in of_request
    assert "deposed" in of_request
    assert internal == "an event of the controller failed: ValueError('a defect')"


def test_an_event_whose_request_was_refused_does_not_start() -> None:
    async def scenario() -> None:
        queue = EventQueue()
        runs: list[str] = []

        async def event(name: str) -> None:
            runs.append(name)

        first, second = queue.append(lambda: event("a")), queue.append(lambda: event("b"))
        first.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, "refused"))
        await second
        assert runs == ["b"]
        with pytest.raises(KafkaError):
            await first

    asyncio.run(scenario())


def test_a_defect_of_an_event_whose_request_was_refused_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        queue = EventQueue()
        begun = asyncio.Event()

        async def fail(error: Exception) -> None:
            begun.set()
            await asyncio.sleep(0)
            raise error

        for error in (KafkaError(ErrorCode.NOT_CONTROLLER, "deposed"), ValueError("a defect")):
            begun.clear()
            result = queue.append(lambda error=error: fail(error))
            await begun.wait()
            result.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER, "refused"))
            with pytest.raises(KafkaError, match="refused"):
                await result
        await queue.close()

    asyncio.run(scenario())
    (message,) = caplog.messages
    assert message.endswith("failed after its request was refused: ValueError('a defect')")
