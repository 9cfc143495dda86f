"""One timer for each key, which fires no later than the earliest deadline that was armed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import NamedTuple

from odradek.environment.clock import Clock
from odradek.environment.timers import Timer, Timers


class _Armed(NamedTuple):
    deadline_ms: float
    timer: Timer


class DeadlineTimers:
    """Timers that call `fire(key)` at deadlines of the monotonic clock. Owned by the event loop.

    A later deadline does not move an armed timer. The timer fires at the earlier deadline, the
    owner finds nothing to do and arms it again. So a heartbeat costs no timer.
    """

    def __init__(self, clock: Clock, timers: Timers, fire: Callable[[str], None]) -> None:
        self._clock = clock
        self._timers = timers
        self._fire = fire
        self._armed: dict[str, _Armed] = {}

    def arm(self, key: str, deadline_ms: float) -> None:
        """Arm the timer of `key` to fire no later than `deadline_ms`, which may be infinite."""
        armed = self._armed.get(key)
        if armed is not None:
            if armed.deadline_ms <= deadline_ms:
                return
            armed.timer.cancel()
            del self._armed[key]
        if deadline_ms == inf:
            return
        delay_s = max(deadline_ms - self._clock.monotonic_ms(), 0.0) / 1000.0
        timer = self._timers.call_later(delay_s, self._due, key)
        self._armed[key] = _Armed(deadline_ms, timer)

    def cancel(self, key: str) -> None:
        armed = self._armed.pop(key, None)
        if armed is not None:
            armed.timer.cancel()

    def cancelling(self) -> Iterator[int]:
        """Cancel all timers. Yield after each one (`shard_transitions`)."""
        while self._armed:
            self._armed.popitem()[1].timer.cancel()
            yield 1

    def _due(self, key: str) -> None:
        self._armed.pop(key, None)
        self._fire(key)
