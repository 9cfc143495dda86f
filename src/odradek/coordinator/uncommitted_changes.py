"""The committed view of a state machine whose latest state is ahead of the high watermark. Pure.

A shard replays its records right after the append, and decides by that latest state. Reads see what
is committed. So before a record that is not committed yet is replayed, the shard keeps the value
that the record replaces (Kafka's ``SnapshotRegistry`` keeps whole snapshots instead). A write that
is committed at once keeps nothing, and the committed view is then the state itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class UncommittedChanges(Generic[K, V]):
    """Values before the writes that are not committed. None stands for no value."""

    __slots__ = ("_before", "_order")

    def __init__(self) -> None:
        self._before: dict[K, deque[tuple[int, V | None]]] = {}
        self._order: deque[tuple[int, K]] = deque()

    def __bool__(self) -> bool:
        return bool(self._order)

    def __contains__(self, key: K) -> bool:
        return key in self._before

    def __iter__(self) -> Iterator[K]:
        return iter(self._before)

    def keep(self, key: K, offset: int, before: V | None) -> None:
        """Keep the value that the record at `offset` replaces. Offsets grow."""
        self._before.setdefault(key, deque()).append((offset, before))
        self._order.append((offset, key))

    def commit(self, offset: int) -> None:
        """The records up to `offset` are committed."""
        while self._order and self._order[0][0] <= offset:
            _, key = self._order.popleft()
            values = self._before[key]
            values.popleft()
            if not values:
                del self._before[key]

    def committed(self, key: K, latest: V | None) -> V | None:
        """The committed value, where `latest` is the one in the latest state."""
        values = self._before.get(key)
        return latest if values is None else values[0][1]
