"""A clock that leaves out the time in which the process did not run."""

from __future__ import annotations

import threading
import time

STEP_MAX_MS = 200.0
"""The clock advances by at most so much from one reading to the next."""


class RunningClock:
    """The time in which a process with several brokers has run.

    On a busy machine a process may stand still for seconds. The timeouts of brokers would expire
    then, although the other brokers of the process were stopped, too. The brokers of one process
    share one clock, and read it many times a second.

    Args:
        time_ms: The time of day at the begin. Default: the real one.
    """

    def __init__(self, time_ms: float | None = None) -> None:
        self._lock = threading.Lock()
        self._real_ms = time.monotonic() * 1000
        self._now_ms = self._real_ms
        self._wall_ms = (time.time() * 1000 if time_ms is None else time_ms) - self._real_ms

    def time_ms(self) -> int:
        return int(self._wall_ms + self.monotonic_ms())

    def monotonic_ms(self) -> float:
        with self._lock:
            real_ms = time.monotonic() * 1000
            self._now_ms += min(real_ms - self._real_ms, STEP_MAX_MS)
            self._real_ms = real_ms
            return self._now_ms
