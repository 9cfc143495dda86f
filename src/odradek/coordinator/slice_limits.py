"""Limits of the time slices of a coordinator's work: elements, and time."""

from __future__ import annotations

from collections.abc import Generator

from odradek.environment.clock import Clock
from odradek.slicing import ELEMENTS_PER_SLICE, SLICE_MS


class SliceLimits:
    """The limits of the time slices of one generator: elements, and time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._left = ELEMENTS_PER_SLICE
        self._ends_ms = self._clock.monotonic_ms() + SLICE_MS

    def spend(self, elements: int) -> Generator[None, None, None]:
        """Count elements. Yield when the slice has ended, then begin the next one."""
        self._left -= elements
        if self._left <= 0 or self._clock.monotonic_ms() >= self._ends_ms:
            yield
            self._begin()
