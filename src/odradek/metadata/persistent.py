"""Persistent map and vector: a change returns a new value and copies little of the old one.

Both have two levels. A map distributes its entries over buckets, which are dictionaries. A vector
has chunks, which are tuples. A change copies the list of buckets or chunks, and the few of them
that it touches. The new value shares all others with the old one. With 10,000 entries a change
copies about 600 references instead of 10,000.

The values are frozen: nothing changes a bucket after its map was returned. Several threads may read
them.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
T = TypeVar("T")

ENTRIES_PER_BUCKET_MAX = 128
"""A map whose buckets have more entries on average gets four times as many buckets."""
CHUNK_LENGTH = 64

_ABSENT: Any = object()


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """A frozen mapping whose changed copies cost little.

    Iteration is in the order of the sorted keys, so it depends neither on hashes nor on the order
    of changes. The sorted keys are remembered until a key is added or removed.
    """

    __slots__ = ("_buckets", "_length", "_mask", "_order", "get")

    if TYPE_CHECKING:

        @overload
        def get(self, key: K, /) -> V | None: ...
        @overload
        def get(self, key: K, /, default: V | D) -> V | D: ...
        def get(self, key: K, /, default: Any = None) -> Any: ...

    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        entries = dict(entries)
        mask = _bucket_count(1, len(entries)) - 1
        self._fill(_distributed(entries.items(), mask), mask, len(entries), None)

    def _fill(
        self, buckets: tuple[dict[K, V], ...], mask: int, length: int, order: list[K] | None
    ) -> None:
        self._buckets = buckets
        self._mask = mask
        self._length = length
        self._order = order
        # A small map is one dictionary. Its look-ups cost no Python call.
        self.get = _look_up(buckets, mask) if mask else buckets[0].get  # type: ignore[method-assign,assignment]

    def __getitem__(self, key: K) -> V:
        return self._buckets[hash(key) & self._mask][key]

    def __contains__(self, key: object) -> bool:
        return key in self._buckets[hash(key) & self._mask]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        if self._order is None:
            self._order = _sorted(chain.from_iterable(self._buckets))
        return iter(self._order)

    def unordered_items(self) -> Iterator[tuple[K, V]]:
        """Iterate over the entries without sorting. The order differs between processes."""
        return chain.from_iterable(bucket.items() for bucket in self._buckets)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, PersistentMap):
            if self._length != other._length:
                return False
            if self._mask == other._mask:  # comparing skips the buckets that both maps share
                return self._buckets == other._buckets
        if not isinstance(other, Mapping) or self._length != len(other):
            return False
        return all(
            key in other and (value is (its := other[key]) or value == its)
            for key, value in self.unordered_items()
        )

    __hash__ = None  # type: ignore[assignment]  # like a dictionary

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"

    def with_changes(
        self, changed: Mapping[K, V], removed: Iterable[K] = ()
    ) -> PersistentMap[K, V]:
        """Return the map with entries added or replaced, and others removed if they exist."""
        removed = tuple(removed)
        if not changed and not removed:
            return self
        mask = self._mask
        buckets = list(self._buckets)
        copied: set[int] = set()
        length = self._length
        for key in removed:
            at = hash(key) & mask
            if key not in buckets[at]:
                continue
            if at not in copied:
                copied.add(at)
                buckets[at] = buckets[at].copy()
            del buckets[at][key]
            length -= 1
        same_keys = length == self._length
        for key, value in changed.items():
            at = hash(key) & mask
            if at not in copied:
                copied.add(at)
                buckets[at] = buckets[at].copy()
            bucket = buckets[at]
            if key not in bucket:
                length += 1
                same_keys = False
            bucket[key] = value
        new: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
        new_mask = _bucket_count(mask + 1, length) - 1
        if new_mask != mask:
            entries = chain.from_iterable(bucket.items() for bucket in buckets)
            buckets = list(_distributed(entries, new_mask))
        new._fill(tuple(buckets), new_mask, length, self._order if same_keys else None)
        return new

    def without(self, *keys: K) -> PersistentMap[K, V]:
        """Return the map without some entries."""
        return self.with_changes({}, keys)


def _look_up(buckets: tuple[dict[K, V], ...], mask: int) -> Callable[..., Any]:
    def get(key: K, default: Any = None) -> Any:
        return buckets[hash(key) & mask].get(key, default)

    return get


def _bucket_count(count: int, length: int) -> int:
    """Return the power of four, at least `count`, with which the buckets are short."""
    while length > count * ENTRIES_PER_BUCKET_MAX:
        count *= 4
    return count


def _distributed(
    entries: ItemsView[K, V] | Iterable[tuple[K, V]], mask: int
) -> tuple[dict[K, V], ...]:
    buckets: tuple[dict[K, V], ...] = tuple({} for _ in range(mask + 1))
    for key, value in entries:
        buckets[hash(key) & mask][key] = value
    return buckets


def _sorted(keys: Iterable[K]) -> list[K]:
    """Sort the keys. None in a tuple comes before all texts."""
    keys = list(keys)
    try:
        return sorted(keys)  # type: ignore[type-var]
    except TypeError:
        return sorted(keys, key=_sort_key)


def _sort_key(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(_sort_key(part) for part in key)
    return (0,) if key is None else (1, key)


class PersistentVector(Sequence[T], Generic[T]):
    """A frozen sequence whose changed copies cost little. It equals a tuple of the same elements.

    All chunks but the last one have `CHUNK_LENGTH` elements.
    """

    __slots__ = ("_chunks", "_length")

    def __init__(self, elements: Iterable[T] = ()) -> None:
        elements = tuple(elements)
        self._length = len(elements)
        self._chunks: tuple[tuple[T, ...], ...] = tuple(
            elements[start : start + CHUNK_LENGTH]
            for start in range(0, len(elements), CHUNK_LENGTH)
        )

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        if isinstance(at, slice):
            return tuple(self)[at]
        if at < 0:
            at += self._length
        if not 0 <= at < self._length:
            raise IndexError("vector index out of range")
        return self._chunks[at // CHUNK_LENGTH][at % CHUNK_LENGTH]

    def __len__(self) -> int:
        return self._length

    @property
    def chunks(self) -> Sequence[tuple[T, ...]]:
        """The elements in pieces of `CHUNK_LENGTH`, which a changed copy may share."""
        return self._chunks

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._chunks)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PersistentVector):
            return self._chunks == other._chunks
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._chunks)

    def __repr__(self) -> str:
        return f"PersistentVector({tuple(self)!r})"

    def with_changes(self, changed: Mapping[int, T]) -> PersistentVector[T]:
        """Return the vector with elements replaced or, from its length on, appended.

        Raises:
            IndexError: The change would leave a gap.
        """
        chunks = list(self._chunks)
        copied: dict[int, list[T]] = {}
        length = self._length
        for at in sorted(changed):
            if not 0 <= at <= length:
                raise IndexError("the change leaves a gap in the vector")
            number, position = divmod(at, CHUNK_LENGTH)
            chunk = copied.get(number)
            if chunk is None:
                chunk = copied[number] = list(chunks[number]) if number < len(chunks) else []
            if at == length:
                chunk.append(changed[at])
                length += 1
            else:
                chunk[position] = changed[at]
        for number, chunk in copied.items():
            if number == len(chunks):
                chunks.append(tuple(chunk))
            else:
                chunks[number] = tuple(chunk)
        new: PersistentVector[T] = PersistentVector.__new__(PersistentVector)
        new._length = length
        new._chunks = tuple(chunks)
        return new
