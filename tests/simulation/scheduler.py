"""The virtual time of a simulation: a heap of events, random streams of one seed, and a trace.

Time is a whole number of microseconds since the start of the simulation. Events of equal time run
in the order in which they were scheduled. Each component draws from a random stream of its own
(`Scheduler.stream`), so a change of one component leaves the choices of the others as they are.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

MILLISECOND = 1_000
SECOND = 1_000_000
TRACE_LINES_BUFFERED_MAX = 1_000
NESTED_MAX = 30
"""Calls that may wait at the same time, each inside of the wait of another one."""


class Event:
    """A call at a virtual moment. `cancel` has no effect after the call."""

    __slots__ = ("args", "call")

    def __init__(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.call: Callable[..., Any] | None = call
        self.args = args

    def cancel(self) -> None:
        self.call = None
        self.args = ()


class Trace:
    """A hash over lines of text, with the last lines for the report of a failed run."""

    def __init__(self, lines_kept: int = 40) -> None:
        self._hash = hashlib.blake2b(digest_size=8)
        self._lines: list[str] = []
        self._lines_kept = lines_kept
        self.count = 0
        self.listeners: list[Callable[[str], None]] = []

    def add(self, line: str) -> None:
        self.count += 1
        self._lines.append(line)
        if len(self._lines) >= TRACE_LINES_BUFFERED_MAX:
            self._fold()
        for listener in self.listeners:
            listener(line)

    def _fold(self) -> None:
        lines = self._lines
        cut = max(len(lines) - self._lines_kept, 0)
        self._hash.update("".join(f"{line}\n" for line in lines[:cut]).encode())
        self._lines = lines[cut:]

    def digest(self) -> str:
        """Return the hash over all lines so far."""
        whole = self._hash.copy()
        whole.update("".join(f"{line}\n" for line in self._lines).encode())
        return whole.hexdigest()

    def tail(self) -> list[str]:
        """Return the last lines."""
        return self._lines[-self._lines_kept :]


class Scheduler:
    """The heap of events. Everything in a simulation happens inside an event's call."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 0
        self.steps = 0
        self.trace = Trace()
        self._heap: list[tuple[int, int, Event]] = []
        self._count = 0
        self._nested = 0

    def stream(self, name: str) -> random.Random:
        """Return the random numbers of a component. They depend on the seed and the name only."""
        return random.Random(f"{self.seed}/{name}")

    def at(self, time_us: int, call: Callable[..., Any], *args: Any) -> Event:
        """Call `call(*args)` at a moment that is not in the past."""
        event = Event(call, args)
        self._count += 1
        heappush(self._heap, (max(time_us, self.now_us), self._count, event))
        return event

    def after(self, delay_us: int, call: Callable[..., Any], *args: Any) -> Event:
        """Call `call(*args)` after `delay_us` microseconds."""
        event = Event(call, args)
        self._count = count = self._count + 1
        heappush(
            self._heap, (self.now_us + delay_us if delay_us > 0 else self.now_us, count, event)
        )
        return event

    def step(self) -> bool:
        """Make the next event's call. Return False if there is no event."""
        heap = self._heap
        while heap:
            time_us, _, event = heappop(heap)
            call = event.call
            if call is None:
                continue
            self.now_us = time_us
            self.steps += 1
            args = event.args
            event.cancel()
            call(*args)
            return True
        return False

    def next_us(self) -> int | None:
        """Return the moment of the next event, or None if there is none."""
        heap = self._heap
        while heap and heap[0][2].call is None:
            heappop(heap)
        return heap[0][0] if heap else None

    def run_until(self, time_us: int, until: Callable[[], bool] | None = None) -> bool:
        """Make all calls up to a moment. Return True at once when `until()` is true after a call.

        Without that, the virtual time is `time_us` afterwards, and the result is False.
        """
        heap = self._heap
        while heap and heap[0][0] <= time_us:
            at_us, _, event = heappop(heap)
            call = event.call
            if call is None:
                continue
            self.now_us = at_us
            self.steps += 1
            args = event.args
            event.cancel()
            call(*args)
            if until is not None and until():
                return True
        self.now_us = max(self.now_us, time_us)
        return False

    def begin_nested(self) -> bool:
        """Allow `run_until` inside of an event's call. Return False if too many calls do so."""
        if self._nested >= NESTED_MAX:
            return False
        self._nested += 1
        return True

    def end_nested(self) -> None:
        self._nested -= 1

    def clear(self) -> None:
        """Drop all events: the simulation is over."""
        self._heap.clear()

    def note(self, line: str) -> None:
        """Add a line with the virtual time to the trace."""
        self.trace.add(f"{self.now_us} {line}")
