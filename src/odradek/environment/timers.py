"""Timers: when a delay is over, a callback runs or a coroutine goes on.

A component that waits takes `Timers` by constructor, and asks no event loop for the time. A test
that moves time provides timers that move with its clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A callback that has not run yet."""

    def cancel(self) -> None:
        """Prevent the callback. Has no effect after it ran."""


class Timers(Protocol):
    """Used on the event loop of the broker only."""

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback(*args)` on the event loop after `delay_s` seconds."""

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds."""


class LoopTimers:
    """The timers of the running event loop."""

    __slots__ = ()

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback, *args)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
