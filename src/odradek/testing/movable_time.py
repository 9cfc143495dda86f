"""Clock and timers of an environment that run in real time and that a test can move forward.

A broker uses the timers of its environment for all waiting: sessions, rebalances, long polls,
periodic checks. `advance` moves clock and timers. The timers that become due run in the order of
their times. The time of the event loop itself is not moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.environment.clock import SystemClock

if TYPE_CHECKING:
    from odradek.environment.timers import Timer

    _Loop = asyncio.SelectorEventLoop
else:
    _Loop = object

QUIET_ITERATIONS = 50
"""Number of loop iterations without work in threads after which all started work counts as ended.

It exceeds the length of each chain of callbacks and tasks that one timer starts.
"""
QUIET_MAX_S = 30.0
EARLY_MS = 5.0
"""A timer counts as due this much earlier, because a loop rounds times to milliseconds."""


class MovableClock:
    """The system's clock plus the time by which a test has advanced it."""

    __slots__ = ("_ahead_ms", "_system", "_wall_ahead_ms")

    def __init__(self) -> None:
        self._system = SystemClock()
        self._ahead_ms = 0.0
        self._wall_ahead_ms = 0.0

    def time_ms(self) -> int:
        return self._system.time_ms() + int(self._wall_ahead_ms)

    def monotonic_ms(self) -> float:
        return self._system.monotonic_ms() + self._ahead_ms

    def advance(self, delta_ms: float) -> None:
        """Move the wall clock and the monotonic clock forward."""
        self._ahead_ms += delta_ms
        self._wall_ahead_ms += delta_ms

    def reset(self) -> None:
        """Set the wall clock to the system's time. The monotonic clock never goes back."""
        self._wall_ahead_ms = 0.0


class _MovableTimer:
    """A timer that runs its callback once, in real time or when a move makes it due."""

    __slots__ = ("_args", "_callback", "_handle", "_waiting", "due_ms")

    def __init__(
        self,
        due_ms: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        waiting: dict[_MovableTimer, None],
    ) -> None:
        self.due_ms = due_ms
        self._callback = callback
        self._args = args
        self._waiting = waiting
        self._handle: asyncio.Handle | None = None
        waiting[self] = None

    def run_after(self, delay_ms: float) -> None:
        """Run after `delay_ms` of real time, in place of the previous delay."""
        if self._handle is not None:
            self._handle.cancel()
        loop = asyncio.get_running_loop()
        if delay_ms <= 0:
            self._handle = loop.call_soon(self._run)
        else:
            self._handle = loop.call_later(delay_ms / 1000, self._run)

    def cancel(self) -> None:
        self._waiting.pop(self, None)
        if self._handle is not None:
            self._handle.cancel()

    def _run(self) -> None:
        self._waiting.pop(self, None)
        self._callback(*self._args)


class MovableTimers:
    """Timers of the running event loop that follow a clock which a test moves."""

    def __init__(self, clock: MovableClock) -> None:
        self._clock = clock
        self._waiting: dict[_MovableTimer, None] = {}

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        delay_ms = max(delay_s * 1000, 0.0)
        due_ms = self._clock.monotonic_ms() + delay_ms
        timer = _MovableTimer(due_ms, callback, args, self._waiting)
        timer.run_after(delay_ms)
        return timer

    async def sleep(self, delay_s: float) -> None:
        over = asyncio.get_running_loop().create_future()
        timer = self.call_later(delay_s, _finish, over)
        try:
            await over
        finally:
            timer.cancel()

    def clock_moved(self) -> None:
        """Run the timers that are due now, the earliest first, and move the others."""
        now_ms = self._clock.monotonic_ms()
        for timer in sorted(self._waiting, key=lambda timer: timer.due_ms):
            left_ms = timer.due_ms - now_ms
            timer.run_after(left_ms if left_ms > EARLY_MS else 0.0)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class QuietLoop(_Loop):
    """Mixin for an event loop that counts calls in threads, to detect when no work is left."""

    _in_threads = 0

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        future = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _future: object) -> None:
        self._in_threads -= 1

    async def quiet(self) -> None:
        """Return when the callbacks, tasks and threads that were started have ended.

        Clients may send requests all the time, so return after `QUIET_MAX_S` at the latest.
        """
        iterations = 0
        ends_s = self.time() + QUIET_MAX_S
        while iterations < QUIET_ITERATIONS and self.time() < ends_s:
            await asyncio.sleep(0)
            iterations = iterations + 1 if not self._in_threads else 0


def quiet_loop_factory(
    base: type[asyncio.AbstractEventLoop] | None,
) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return a factory of event loops of class `base` (None: asyncio's) with `QuietLoop`."""
    bases = (QuietLoop, base or asyncio.SelectorEventLoop)
    made: Callable[[], asyncio.AbstractEventLoop] = type("QuietEventLoop", bases, {})
    return made
