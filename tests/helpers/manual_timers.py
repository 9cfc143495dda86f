"""Timers that move a manual clock instead of waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.environment.clock import ManualClock
from odradek.environment.timers import Timer


class ManualTimers:
    """`sleep` moves the clock and lets other tasks run. A callback runs in the next iteration of
    the event loop.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        self._clock.advance(round(delay_s * 1000))
        return asyncio.get_running_loop().call_soon(callback, *args)

    async def sleep(self, delay_s: float) -> None:
        self._clock.advance(round(delay_s * 1000))
        await asyncio.sleep(0)
