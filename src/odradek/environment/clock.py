"""Time comes in by constructor: the system's clock, or one that a test moves.

`time_ms` is wall-clock time in milliseconds since the epoch (record timestamps, retention);
`monotonic_ms` never goes back (timers, time-outs). No other module reads the time.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def time_ms(self) -> int: ...

    def monotonic_ms(self) -> float: ...


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0


class ManualClock:
    """A clock that moves only when told to: for tests and the simulator."""

    __slots__ = ("_monotonic_ms", "_time_ms")

    def __init__(self, time_ms: int = 1_700_000_000_000) -> None:
        self._time_ms = time_ms
        self._monotonic_ms = 0.0

    def time_ms(self) -> int:
        return self._time_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance(self, delta_ms: int) -> None:
        """Moves both clocks forward by `delta_ms` (not negative)."""
        if delta_ms < 0:
            raise ValueError(f"time does not go back: {delta_ms}")
        self._time_ms += delta_ms
        self._monotonic_ms += delta_ms
