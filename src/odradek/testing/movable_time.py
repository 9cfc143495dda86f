"""Time that goes on by itself and that a test moves forward: a clock and timers for an environment.

Everything in a broker that waits, waits on the timers of its environment: sessions, rebalances,
long polls, the periodic checks. `advance` moves clock and timers, and the timers that are due then
run in the order in which they would have run. The event loop itself is not moved.
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
"""Iterations of the loop without work in a thread after which all work that was started counts as
ended: longer than any chain of callbacks and tasks behind one timer."""
QUIET_MAX_S = 30.0
EARLY_MS = 5.0
"""A loop rounds timers to its own milliseconds, so a timer counts as due so much earlier."""


class MovableClock:
    """The system's clock, ahead by what a test has advanced it."""

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
        """Moves both clocks forward."""
        self._ahead_ms += delta_ms
        self._wall_ahead_ms += delta_ms

    def reset(self) -> None:
        """The wall clock shows the system's time again; the monotonic one never goes back."""
        self._wall_ahead_ms = 0.0


class _MovableTimer:
    """Runs its callback once: by a timer of the loop, or when it is due after a move."""

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
        """Run after so much real time instead of when it would have run."""
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
    """Timers of the running event loop, by a clock that a test moves."""

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
    """Mixed into an event loop: counts the calls in threads, to know when nothing is under way."""

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
        """Return when callbacks, tasks and threads that were started have ended.

        Clients may leave no quiet: then return after `QUIET_MAX_S`.
        """
        iterations = 0
        ends_s = self.time() + QUIET_MAX_S
        while iterations < QUIET_ITERATIONS and self.time() < ends_s:
            await asyncio.sleep(0)
            iterations = iterations + 1 if not self._in_threads else 0


def quiet_loop_factory(
    base: type[asyncio.AbstractEventLoop] | None,
) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes loops of `base` (None: asyncio's own) that know when they are quiet."""
    bases = (QuietLoop, base or asyncio.SelectorEventLoop)
    made: Callable[[], asyncio.AbstractEventLoop] = type("QuietEventLoop", bases, {})
    return made
