"""Blocks of producer ids: one request in flight, before the block is used up, and a short wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.broker.transactions.producer_ids import BLOCK_WAIT_MS, ProducerIdAllocator
from odradek.environment.clock import ManualClock
from odradek.errors import ErrorCode, KafkaError
from tests.helpers.manual_timers import SteppedTimers, settle


class Fixture:
    def __init__(self) -> None:
        self.timers = SteppedTimers(ManualClock())
        self.ids = ProducerIdAllocator(self._allocate, self.timers, BLOCK_WAIT_MS)
        self.requests: list[asyncio.Future[range]] = []

    async def _allocate(self) -> range:
        self.requests.append(asyncio.Future())
        return await self.requests[-1]

    async def next(self) -> asyncio.Task[int]:
        """Start a request for an id."""
        task = asyncio.create_task(self.ids.next())
        await settle()
        return task


def run(test: Callable[[Fixture], Awaitable[None]]) -> None:
    async def main() -> None:
        it = Fixture()
        await test(it)
        it.ids.close()
        await settle()
        assert it.timers.armed == 0

    asyncio.run(main())


async def code_of(request: asyncio.Task[int]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await request
    return caught.value.code


def test_requests_at_the_end_of_a_block_share_the_next_one() -> None:
    async def test(it: Fixture) -> None:
        assert it.ids.next_or_none() is None
        waiting = [await it.next() for _ in range(3)]
        assert len(it.requests) == 1
        it.requests[0].set_result(range(2))
        await settle()
        assert [await waiting[0], await waiting[1]] == [0, 1]
        assert not waiting[2].done()
        it.requests[1].set_result(range(1_000, 1_003))
        assert await waiting[2] == 1_000
        assert it.ids.next_or_none() == 1_001

    run(test)


def test_all_requests_without_a_controller_wait_for_one_second() -> None:
    """They do not wait one after the other. The request to the controller continues."""

    async def test(it: Fixture) -> None:
        waiting = [await it.next() for _ in range(20)]
        it.timers.advance(BLOCK_WAIT_MS - 1)
        await settle()
        assert not any(each.done() for each in waiting)
        it.timers.advance(1)
        for each in waiting:
            assert await code_of(each) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        it.requests[0].set_result(range(5, 105))
        await settle()
        assert len(it.requests) == 1
        assert it.ids.next_or_none() == 5

    run(test)


def test_a_block_is_requested_before_the_current_one_is_used_up() -> None:
    async def test(it: Fixture) -> None:
        first = await it.next()
        it.requests[0].set_result(range(1_000))
        assert await first == 0
        for number in range(1, 899):
            assert it.ids.next_or_none() == number
        await settle()
        assert len(it.requests) == 1
        for number in range(899, 950):
            assert it.ids.next_or_none() == number
        await settle()
        assert len(it.requests) == 2
        it.requests[1].set_result(range(7_000, 8_000))
        await settle()
        ids = [it.ids.next_or_none() for _ in range(51)]
        assert ids == [*range(950, 1_000), 7_000]
        assert len(it.requests) == 2

    run(test)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.NOT_CONTROLLER, ""), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, ""), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ValueError("bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_failed_request_is_an_error_and_is_made_again(error: Exception, code: ErrorCode) -> None:
    async def test(it: Fixture) -> None:
        waiting = await it.next()
        it.requests[0].set_exception(error)
        assert await code_of(waiting) is code
        again = await it.next()
        it.requests[1].set_result(range(3))
        assert await again == 0

    run(test)


def test_a_request_ends_when_the_broker_stops() -> None:
    async def test(it: Fixture) -> None:
        waiting = await it.next()
        it.ids.close()
        assert await code_of(waiting) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    run(test)
