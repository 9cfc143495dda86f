"""A watchdog: it ends the session of a broker whose event loop is blocked.

A client of ZooKeeper sends pings from a thread of its own. A blocked event loop would therefore
keep its session, and its broker would lead partitions that it does not serve. The event loop
increments a counter, and a thread compares it. If the counter has not changed for the limit, the
thread ends the session.

The thread measures the time between its own checks. A check that comes late counts as two intervals
at most, so a process that was suspended as a whole does not lose its session for that reason.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.environment.clock import Clock

CHECKS_PER_LIMIT = 6
BEATS_PER_LIMIT = 12


class SessionWatchdog:
    """The counter, and the check of it. `beat` belongs to the event loop, `check` to the thread."""

    def __init__(self, limit_ms: float, clock: Clock, end_session: Callable[[], None]) -> None:
        """Create a watchdog.

        Args:
            limit_ms: The session ends when the event loop was blocked for so long.
            clock: The time of the checks.
            end_session: Called once, on the watchdog's thread. It may block.
        """
        self._limit_ms = limit_ms
        self._clock = clock
        self._end_session = end_session
        self._beats = 0
        self._beats_seen = 0
        self._checked_ms = clock.monotonic_ms()
        self._blocked_ms = 0.0

    @property
    def check_interval_ms(self) -> float:
        return self._limit_ms / CHECKS_PER_LIMIT

    @property
    def beat_interval_ms(self) -> float:
        return self._limit_ms / BEATS_PER_LIMIT

    def change_limit(self, limit_ms: float) -> None:
        """Change the limit, from the next check on. The event loop calls it."""
        self._limit_ms = limit_ms

    def beat(self) -> None:
        """Report that the event loop is not blocked."""
        self._beats += 1

    def check(self) -> bool:
        """End the session if the event loop is blocked. Return whether it was ended."""
        now_ms, beats = self._clock.monotonic_ms(), self._beats
        passed_ms, self._checked_ms = now_ms - self._checked_ms, now_ms
        if beats != self._beats_seen:
            self._beats_seen, self._blocked_ms = beats, 0.0
            return False
        self._blocked_ms += min(passed_ms, 2 * self.check_interval_ms)
        if self._blocked_ms < self._limit_ms:
            return False
        self._end_session()
        return True

    def run(self, wait: Callable[[float], bool]) -> None:
        """Check in intervals until the session was ended or `wait(seconds)` returns True."""
        while not wait(self.check_interval_ms / 1000):
            if self.check():
                return
