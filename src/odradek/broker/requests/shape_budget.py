"""Memory limit for the remembered request shapes of all connections.

A connection remembers the bytes around the records of its produce requests
(`odradek.broker.requests.repeated_produce`). These shapes are a cache. When all connections
together exceed the limit, the least recently active connections forget their shapes. Their next
requests take the general path and are remembered again.
"""

from __future__ import annotations

from typing import Protocol

SHAPE_BYTES_MAX = 32 * 1_048_576
"""Memory for the remembered shapes of all connections, enough for some 30,000 of the usual size."""

HOLDER_BYTES = 600
"""Memory of a holder without its shapes (measured)."""


class ShapeHolder(Protocol):
    """The shapes that one connection remembers. It is hashed by identity."""

    used: bool
    """Whether a request has matched one of the shapes since the budget last cleared the flag."""

    def forget(self) -> None:
        """Forget all shapes. Do not call `ShapeBudget.release`."""


class ShapeBudget:
    """The number of bytes of all shapes, and its limit.

    Owned by the dispatcher, used on its event loop only.

    Holders are evicted by the CLOCK algorithm. The use of a shape only sets the holder's flag
    `used`. The algorithm clears the flag and passes over the holder once.
    """

    __slots__ = ("_holders", "bytes_max", "used")

    def __init__(self, bytes_max: int = SHAPE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._holders: dict[ShapeHolder, int] = {}

    def acquire(self, holder: ShapeHolder, size: int) -> None:
        """Charge `size` more bytes to `holder`, and evict other holders until the limit is met.

        If the shapes of `holder` alone exceed the limit, it forgets all of them.
        """
        holders = self._holders
        if holder not in holders:
            holders[holder] = 0
            size += HOLDER_BYTES
        holders[holder] += size
        self.used += size
        while self.used > self.bytes_max:
            oldest = next(iter(holders))
            if oldest.used and len(holders) > 1:
                oldest.used = False
                holders[oldest] = holders.pop(oldest)
            elif oldest is holder and len(holders) > 1:
                holders[oldest] = holders.pop(oldest)
            else:
                self.release(oldest)
                oldest.forget()

    def release_bytes(self, holder: ShapeHolder, size: int) -> None:
        """Return `size` bytes to the budget. `holder` has forgotten one of its shapes."""
        if holder in self._holders:
            self._holders[holder] -= size
            self.used -= size

    def release(self, holder: ShapeHolder) -> None:
        """Return all bytes of `holder` to the budget.

        Its connection is closed, or it forgets all of its shapes.
        """
        self.used -= self._holders.pop(holder, 0)
