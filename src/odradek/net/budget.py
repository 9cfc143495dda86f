"""Memory for requests, over all connections: charged before it is allocated, granted in order.

A frame that does not fit waits; who came first is served first, and nobody overtakes, so a large
frame is not starved by small ones. One frame may always be held, however large: a limit below the
largest frame slows, it does not block.
"""

from __future__ import annotations

from typing import Protocol


class MemoryWaiter(Protocol):
    """Who asked for memory and has to wait for it."""

    def memory_granted(self, size: int) -> None:
        """The `size` bytes asked for are charged now."""


class MemoryBudget:
    """Counts bytes; owned by the loop of the server. `used` and `waiting` are for reading only."""

    __slots__ = ("bytes_max", "used", "waiting")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.waiting: dict[MemoryWaiter, int] = {}

    def acquire(self, owner: MemoryWaiter, size: int) -> bool:
        """True: `size` bytes are charged. False: `owner.memory_granted(size)` will be called."""
        if not self.waiting and self._fits(size):
            self.used += size
            return True
        self.waiting[owner] = size
        return False

    def release(self, size: int) -> None:
        """Gives back `size` bytes and serves those who wait."""
        self.used -= size
        assert self.used >= 0, "more memory given back than taken"
        self._grant()

    def forget(self, owner: MemoryWaiter) -> None:
        """`owner` waits no more."""
        if self.waiting.pop(owner, None) is not None:
            self._grant()

    def _fits(self, size: int) -> bool:
        return self.used == 0 or self.used + size <= self.bytes_max

    def _grant(self) -> None:
        while self.waiting:
            owner, size = next(iter(self.waiting.items()))
            if not self._fits(size):
                return
            del self.waiting[owner]
            self.used += size
            owner.memory_granted(size)
