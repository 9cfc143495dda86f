"""The committed view of a state machine whose latest state is ahead of the high watermark. Pure.

A shard replays its records right after the append, and its handlers use that latest state. Reads
return committed values. Before the shard replays a record that is not committed yet, it keeps the
value that the record replaces (Kafka's ``SnapshotRegistry`` keeps whole snapshots instead). A write
that is committed with its append keeps nothing. The committed view is then the state itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from typing import Generic, TypeVar

BLOCK_KEYS_MIN = 100
"""Keys of a write from which on they are kept as a block.

A lookup visits all blocks, and hundreds of short transactions may end at the same time.
"""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Block(Generic[K, V]):
    """The values from before one write of many records, which ends at `offset`.

    The mapping is made when it is needed. Most writes are committed before. A write that is applied
    in time slices adds its values with them. A key may occur twice. Its first value is the one from
    before the write.
    """

    __slots__ = ("_before", "_values", "keys", "offset")

    def __init__(self, offset: int, keys: Sequence[K], values: Sequence[V | None]) -> None:
        self.offset = offset
        self.keys = keys
        self._values = values
        self._before: Mapping[K, V | None] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all records are applied. Before that, no key of the write is looked up."""
        return len(self._values) == len(self.keys)

    def before(self) -> Mapping[K, V | None]:
        if not self.is_complete:
            return {}
        if self._before is None:
            pairs = zip(reversed(self.keys), reversed(self._values), strict=True)
            self._before = dict(pairs)
        return self._before


class UncommittedChanges(Generic[K, V]):
    """The values from before the writes that are not committed. None stands for no value.

    `_blocks` has the values of `keep_all` in the order of their offsets, `_before` all others.
    """

    __slots__ = ("_before", "_blocks", "_order")

    def __init__(self) -> None:
        self._before: dict[K, deque[tuple[int, V | None]]] = {}
        self._order: deque[tuple[int, K]] = deque()
        self._blocks: deque[_Block[K, V]] = deque()

    def __bool__(self) -> bool:
        return bool(self._order or self._blocks)

    def __contains__(self, key: K) -> bool:
        return key in self._before or any(key in each.before() for each in self._blocks)

    def __iter__(self) -> Iterator[K]:
        if not self._blocks:
            return iter(self._before)
        return iter(dict.fromkeys(chain(self._before, *(each.keys for each in self._blocks))))

    def keep(self, key: K, offset: int, before: V | None) -> None:
        """Keep the value that the record at `offset` replaces. Calls are in offset order."""
        self._before.setdefault(key, deque()).append((offset, before))
        self._order.append((offset, key))

    def keep_all(self, offset: int, keys: Sequence[K], values: Sequence[V | None]) -> None:
        """Keep the values that the records of one write replace, as `keep` does for each record.

        Args:
            offset: The offset of the last record. Calls of both methods are in offset order.
            keys: The key of each record. It may occur more than once.
            values: The value of each key before the write.
        """
        if len(keys) < BLOCK_KEYS_MIN:
            for key, value in zip(keys, values, strict=True):
                self.keep(key, offset, value)
        else:
            self.keep_block(offset, keys, values)

    def keep_block(self, offset: int, keys: Sequence[K], values: Sequence[V | None]) -> None:
        """Keep the values that the records of one write replace, as `keep_all`.

        `values` may be empty. The caller then adds the values when it applies the records, before
        any of the keys is looked up.
        """
        self._blocks.append(_Block(offset, keys, values))

    def commit(self, offset: int) -> None:
        """Drop the kept values of the records up to `offset`, which are committed."""
        while self._blocks and self._blocks[0].offset <= offset:
            self._blocks.popleft()
        while self._order and self._order[0][0] <= offset:
            _, key = self._order.popleft()
            values = self._before[key]
            values.popleft()
            if not values:
                del self._before[key]

    def kept(self) -> dict[K, V | None]:
        """Return the committed value of each key that an uncommitted record changes."""
        kept: dict[K, V | None] = {}
        for block in reversed(self._blocks):
            kept.update(block.before())
        for key in self._before:
            kept[key] = self.committed(key, None)
        return kept

    def committed(self, key: K, latest: V | None) -> V | None:
        """Return the committed value of `key`. Its value in the latest state is `latest`."""
        values = self._before.get(key)
        if not self._blocks:
            return latest if values is None else values[0][1]
        offset, before = (inf, latest) if values is None else values[0]
        for block in self._blocks:
            if block.offset > offset:
                break
            kept = block.before()
            if key in kept:
                return kept[key]
        return before
