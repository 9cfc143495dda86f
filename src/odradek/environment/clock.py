"""Clocks: the time of the system, or a time that a test controls.

`time_ms` is wall-clock time in milliseconds since the epoch (record timestamps, retention).
`monotonic_ms` never decreases (timers, timeouts). Components take a clock by constructor and do
not read the time in another way.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def time_ms(self) -> int: ...

    def monotonic_ms(self) -> float: ...


class SystemClock:
    """The clock of the operating system."""

    __slots__ = ()

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0


class ManualClock:
    """A clock that moves only when `advance` is called, for tests and the simulator."""

    __slots__ = ("_monotonic_ms", "_time_ms")

    def __init__(self, time_ms: int = 1_700_000_000_000) -> None:
        self._time_ms = time_ms
        self._monotonic_ms = 0.0

    def time_ms(self) -> int:
        return self._time_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance(self, delta_ms: int) -> None:
        """Move both clocks forward by `delta_ms`, which must not be negative."""
        if delta_ms < 0:
            raise ValueError(f"a clock cannot be moved back: {delta_ms} ms")
        self._time_ms += delta_ms
        self._monotonic_ms += delta_ms
