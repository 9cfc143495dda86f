"""Timers that move a manual clock instead of waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.environment.clock import ManualClock
from odradek.environment.timers import Timer


async def settle() -> None:
    """Let the tasks run that wait for no timer."""
    for _ in range(5):
        await asyncio.sleep(0)


class ManualTimers:
    """Timers that move the clock when they are set.

    `sleep` lets other tasks run. A callback runs in the next iteration of the event loop.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        self._clock.advance(round(delay_s * 1000))
        return asyncio.get_running_loop().call_soon(callback, *args)

    async def sleep(self, delay_s: float) -> None:
        self._clock.advance(round(delay_s * 1000))
        await asyncio.sleep(0)


class SteppedTimers:
    """Timers that wait until `advance` moves the clock to their deadlines.

    A timer without a delay runs in the next iteration of the event loop.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._armed: list[_SteppedTimer] = []

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        if delay_s <= 0:
            return asyncio.get_running_loop().call_soon(callback, *args)
        at_ms = self._clock.monotonic_ms() + delay_s * 1000
        timer = _SteppedTimer(at_ms, callback, args, self._armed)
        self._armed.append(timer)
        return timer

    @property
    def armed(self) -> int:
        """The number of waiting timers."""
        return len(self._armed)

    async def sleep(self, delay_s: float) -> None:
        elapsed = asyncio.get_running_loop().create_future()
        self.call_later(delay_s, elapsed.set_result, None)
        await elapsed

    def advance(self, delta_ms: int) -> None:
        """Move the clock by `delta_ms`, and call each timer that is due then once."""
        self._clock.advance(delta_ms)
        now_ms = self._clock.monotonic_ms()
        for timer in sorted(self._armed, key=lambda timer: timer.at_ms):
            if timer.at_ms <= now_ms and timer in self._armed:
                timer.cancel()
                timer.callback(*timer.args)


class _SteppedTimer:
    def __init__(
        self,
        at_ms: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        armed: list[_SteppedTimer],
    ) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.args = args
        self._armed = armed

    def cancel(self) -> None:
        if self in self._armed:
            self._armed.remove(self)
