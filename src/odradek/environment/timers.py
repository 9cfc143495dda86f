"""Timers: a callback runs, or a coroutine continues, after a delay.

A component that needs delays takes `Timers` by constructor and does not ask the event loop for the
time. A test with a manual clock provides timers that move with its clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Protocol


class Timer(Protocol):
    """A callback that has not run yet."""

    def cancel(self) -> None:
        """Cancel the callback. Has no effect after the callback ran."""


class Timers(Protocol):
    """A source of timers. Used on the event loop of the broker only."""

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback(*args)` on the event loop after `delay_s` seconds."""

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds."""


class OneLoopTimers:
    """The timers of one event loop, which may be set from outside of it on the same thread."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        return self._loop.call_later(delay_s, callback, *args)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


class LoopTimers:
    """The timers of the running event loop."""

    __slots__ = ()

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback, *args)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


async def wait_at_most(
    timers: Timers, futures: Collection[asyncio.Future[Any]], wait_ms: float
) -> None:
    """Return when all futures are done, or after `wait_ms` milliseconds.

    The futures continue after that, and when the waiting task is cancelled.
    """
    unfinished = {future for future in futures if not future.done()}
    if not unfinished:
        return
    ended = asyncio.get_running_loop().create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    def finished(future: asyncio.Future[Any]) -> None:
        unfinished.discard(future)
        if not unfinished:
            end()

    for future in unfinished:
        future.add_done_callback(finished)
    timer = timers.call_later(wait_ms / 1000, end)
    try:
        await ended
    finally:
        timer.cancel()
        for future in unfinished:
            future.remove_done_callback(finished)
