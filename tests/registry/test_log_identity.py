"""The checks of the identity of the log: what ends an instance, and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.environment.clock import ManualClock
from odradek.environment.timers import Timer
from odradek.registry.log_identity import (
    ABSENT_MS,
    CHECK_INTERVAL_S,
    RETRY_S,
    LogIdentity,
    LogIdentityWatch,
    LogLost,
)

START = LogIdentity("cluster", "topic")


class Brokers:
    """The identities that the brokers report, and the requests."""

    def __init__(self, *found: LogIdentity | TimeoutError | None) -> None:
        self._found = list(found)
        self.requests = 0

    async def read(self) -> LogIdentity | None:
        self.requests += 1
        found = self._found.pop(0) if len(self._found) > 1 else self._found[0]
        if isinstance(found, TimeoutError):
            raise found
        return found


class ClockTimers:
    """Timers that move a clock when the event loop has nothing else to do."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.pauses: list[float] = []

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        self.pauses.append(delay_s)
        self._clock.advance(int((delay_s - RETRY_S) * 1000))
        return asyncio.get_running_loop().call_soon(callback, *args)

    async def sleep(self, delay_s: float) -> None:
        self._clock.advance(int(delay_s * 1000))
        await asyncio.sleep(0)


class Watched:
    """A watch with the brokers of a test."""

    def __init__(self, brokers: Brokers) -> None:
        self.clock = ManualClock()
        self.timers = ClockTimers(self.clock)
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.watch = LogIdentityWatch(
            "_schemas", START, brokers, self.clock, self.timers, self.failed.set_result
        )

    async def failure(self) -> str:
        self.watch.start()
        try:
            async with asyncio.timeout(60.0):
                error = await self.failed
        finally:
            await self.watch.close()
        assert isinstance(error, LogLost)
        return str(error)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (LogIdentity("cluster", "other"), "was created again"),
        (LogIdentity("other", "topic"), "belongs to cluster other"),
    ],
)
def test_another_topic_or_cluster_ends_the_instance(found: LogIdentity, reason: str) -> None:
    async def test() -> None:
        watched = Watched(Brokers(START, TimeoutError(), START, found))
        line = await watched.failure()
        assert reason in line and "Start the registry again" in line
        assert watched.timers.pauses == [CHECK_INTERVAL_S] * 4

    run(test)


def test_a_topic_that_stays_absent_ends_the_instance_after_a_time() -> None:
    async def test() -> None:
        watched = Watched(Brokers(START, None))
        assert "was deleted" in await watched.failure()
        assert watched.clock.monotonic_ms() == 2 * CHECK_INTERVAL_S * 1000 + ABSENT_MS

    run(test)


def test_a_topic_that_is_absent_for_a_short_time_ends_nothing() -> None:
    async def test() -> None:
        short = [None] * 5
        watched = Watched(Brokers(*short, START, *short, START, LogIdentity("", "end")))
        assert "was created again" in await watched.failure()

    run(test)


def test_ids_that_the_brokers_do_not_report_are_not_compared() -> None:
    assert START.difference(LogIdentity("", "")) is None
    assert LogIdentity("", "").difference(START) is None


def test_an_error_of_the_reader_causes_a_check_before_the_interval_ends() -> None:
    async def test() -> None:
        brokers = Brokers(LogIdentity("cluster", "other"))
        watched = Watched(brokers)
        is_pausing = asyncio.Event()

        class Held(ClockTimers):
            def call_later(
                self, delay_s: float, callback: Callable[..., object], *args: object
            ) -> Timer:
                is_pausing.set()
                return asyncio.get_running_loop().call_later(3600.0, callback, *args)

        watched.watch._timers = Held(watched.clock)
        watched.watch.start()
        await is_pausing.wait()
        watched.watch.suspect()
        async with asyncio.timeout(60.0):
            assert isinstance(await watched.failed, LogLost)
        assert brokers.requests == 1

    run(test)


def test_a_take_over_does_not_pass_the_check_while_the_topic_is_absent() -> None:
    async def test() -> None:
        watched = Watched(Brokers(None, START))
        with pytest.raises(TimeoutError, match="does not exist"):
            await watched.watch.verify()
        await watched.watch.verify()

    run(test)
