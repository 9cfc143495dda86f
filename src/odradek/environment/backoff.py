"""Delays between the attempts of an operation, which double up to a maximum."""

from __future__ import annotations

from odradek.environment.timers import Timers


class Backoff:
    """The delays of one operation.

    Args:
        timers: The timers of the delays.
        first_ms: The delay after the first attempt.
        max_ms: The maximum of a delay.
    """

    def __init__(self, timers: Timers, first_ms: float, max_ms: float) -> None:
        self._timers = timers
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._next_ms = first_ms

    async def wait(self) -> None:
        """Wait for the next delay."""
        delay_ms = self._next_ms
        self._next_ms = min(delay_ms * 2, self._max_ms)
        await self._timers.sleep(delay_ms / 1000)

    def reset(self) -> None:
        """Begin with the first delay again, after an attempt that succeeded."""
        self._next_ms = self._first_ms
