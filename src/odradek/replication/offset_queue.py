"""A queue of operations that wait until an offset of a partition has reached a value."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T")

REMOVED_ENTRIES_MAX = 64
"""Number of removed entries that stay in the heap besides one for each entry that waits."""


class OffsetQueue(Generic[T]):
    """Operations in the order of their required offsets. Equal offsets keep their order.

    An operation is added once. `remove` only marks its entry, because requests of one partition may
    expire by the thousands at the same time.
    """

    __slots__ = ("_count", "_entries", "_heap")

    def __init__(self) -> None:
        # Required offset, a count as the tie-breaker, and the operation. Operations cannot be
        # compared. The operation of a removed entry is None.
        self._heap: list[list[Any]] = []
        self._entries: dict[T, list[Any]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, operation: T, required_offset: int) -> None:
        """Add an operation that waits for `required_offset`."""
        self._count += 1
        entry = self._entries[operation] = [required_offset, self._count, operation]
        heappush(self._heap, entry)

    def remove(self, operation: T) -> None:
        """Remove an operation, if it is in the queue. The cost does not depend on the others."""
        entry = self._entries.pop(operation, None)
        if entry is None:
            return
        entry[2] = None
        if len(self._heap) > 2 * len(self._entries) + REMOVED_ENTRIES_MAX:
            self._heap = list(self._entries.values())
            heapify(self._heap)

    def first_up_to(self, offset: int) -> T | None:
        """Remove the first operation and return it, if `offset` is sufficient for it."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            operation: T | None = heappop(heap)[2]
            if operation is not None:
                del self._entries[operation]
                return operation
        return None

    def remove_all(self) -> list[T]:
        """Remove all operations, and return them in their order."""
        entries, self._entries, self._heap = self._entries, {}, []
        return [entry[2] for entry in sorted(entries.values())]
