"""A queue of operations that wait until an offset of a partition has reached a value."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class OffsetQueue(Generic[T]):
    """Operations in the order of their required offsets. Equal offsets keep their order."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        # With a count as the tie-breaker, because operations cannot be compared.
        self._heap: list[tuple[int, int, T]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, operation: T, required_offset: int) -> None:
        """Add an operation that waits for `required_offset`."""
        self._count += 1
        heappush(self._heap, (required_offset, self._count, operation))

    def remove(self, operation: T) -> None:
        """Remove all entries of an operation."""
        self._heap = [each for each in self._heap if each[2] is not operation]
        heapify(self._heap)

    def first_up_to(self, offset: int) -> T | None:
        """Remove the first operation and return it, if `offset` is sufficient for it."""
        heap = self._heap
        return heappop(heap)[2] if heap and heap[0][0] <= offset else None

    def remove_all(self) -> list[T]:
        """Remove all operations, and return them in their order."""
        heap, self._heap = self._heap, []
        return [operation for _, _, operation in sorted(heap, key=lambda each: each[:2])]
