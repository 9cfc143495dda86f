"""Time that goes on by itself and that a test moves forward: a clock, and a loop whose timers obey.

Everything in a broker that waits, waits on a timer of its event loop: sessions, rebalances, long
polls, the periodic checks. So the loop is the place where time is moved: `advance` shifts its
clock, and the timers that thereby fall due run in the order in which they would have. No part of
the broker knows of it, and a broker outside of tests runs on a loop without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from odradek.environment.clock import SystemClock

if TYPE_CHECKING:
    _Loop = asyncio.SelectorEventLoop
else:
    _Loop = object

# Turns of the loop without work in a thread after which what was begun is taken to have ended:
# longer than any chain of callbacks and tasks behind one timer.
QUIET_TURNS = 50
QUIET_MAX_S = 30.0
# A loop rounds timers to its own milliseconds; one that is early looks at the clock and waits on.
EARLY_S = 0.005


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


class _Timer(asyncio.TimerHandle):
    """A timer that is known to `MovableLoop`; it runs once, by the real timer or by `advance`."""

    __slots__ = ("_timers", "real")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        loop: asyncio.AbstractEventLoop,
        timers: set[_Timer],
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._timers = timers
        timers.add(self)
        self.real: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        self._end()
        # asyncio's own timer would now report to its loop, which has never heard of it.
        asyncio.Handle.cancel(self)

    def fire(self) -> None:
        if not self.cancelled() and self in self._timers:
            self._end()
            self._run()

    def _end(self) -> None:
        self._timers.discard(self)
        if self.real is not None:
            self.real.cancel()


class MovableLoop(_Loop):
    """Mixed into an event loop: its time can be moved, and what runs in threads is counted."""

    _ahead_s = 0.0
    _in_threads = 0
    _timers: set[_Timer]

    def time(self) -> float:
        return super().time() + self._ahead_s

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(self.time() + delay, callback, args, context, self, self._timers)
        # The base loop's clock is not ahead, so it is asked for a delay, not for a moment.
        base = super().call_later if self._delays_natively else self._call_at_base
        timer.real = base(max(delay, 0.0), timer.fire)
        return timer

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        future = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _future: object) -> None:
        self._in_threads -= 1

    _delays_natively = True

    def _call_at_base(self, delay: float, callback: Callable[..., object]) -> asyncio.TimerHandle:
        # asyncio's `call_later` goes through `call_at`, which is ours. Its heap is looked at with
        # `time()`, which is ours too, so the moment is one of the moved clock.
        return super().call_at(self.time() + delay, callback)

    def move(self, seconds: float) -> None:
        """Shifts the loop's time; the timers that are due now run next, the oldest first."""
        self._ahead_s += seconds
        now = self.time() + EARLY_S
        due = sorted((each for each in self._timers if each.when() <= now), key=_when)
        for timer in due:
            self.call_soon(timer.fire)

    async def quiet(self) -> None:
        """Returns when callbacks, tasks and threads that were begun have run out, or with clients
        that leave no quiet, after a while."""
        turns = 0
        ends_s = super().time() + QUIET_MAX_S
        while turns < QUIET_TURNS and super().time() < ends_s:
            await asyncio.sleep(0)
            turns = turns + 1 if not self._in_threads else 0


def _when(timer: asyncio.TimerHandle) -> float:
    return timer.when()


def movable_loop_factory(
    base: type[asyncio.AbstractEventLoop] | None,
) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes loops of `base` (None: asyncio's own) whose time can be moved."""
    bases = (MovableLoop, base or asyncio.SelectorEventLoop)
    made = type("MovableEventLoop", bases, {"_delays_natively": base is not None})

    def make() -> Any:
        loop = made()
        loop._timers = set()
        return loop

    return make
