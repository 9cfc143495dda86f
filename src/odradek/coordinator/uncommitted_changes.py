"""The committed view of a state machine whose latest state is ahead of the high watermark. Pure.

A shard replays its records right after the append, and its handlers use that latest state. Reads
return committed values. Before the shard replays a record that is not committed yet, it keeps the
value that the record replaces (Kafka's ``SnapshotRegistry`` keeps whole snapshots instead). A write
that is committed with its append keeps nothing. The committed view is then the state itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class UncommittedChanges(Generic[K, V]):
    """The values from before the writes that are not committed. None stands for no value."""

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
        """Keep the value that the record at `offset` replaces. Calls are in offset order."""
        self._before.setdefault(key, deque()).append((offset, before))
        self._order.append((offset, key))

    def commit(self, offset: int) -> None:
        """Drop the kept values of the records up to `offset`, which are committed."""
        while self._order and self._order[0][0] <= offset:
            _, key = self._order.popleft()
            values = self._before[key]
            values.popleft()
            if not values:
                del self._before[key]

    def committed(self, key: K, latest: V | None) -> V | None:
        """Return the committed value of `key`. Its value in the latest state is `latest`."""
        values = self._before.get(key)
        return latest if values is None else values[0][1]
