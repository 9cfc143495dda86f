"""The newest offset of each key, in bounded memory, by a hash of the key.

The map is an open-addressing table with double hashing over three anonymous mappings. A slot has 16
bytes: 64 bits of hash, 32 more bits, and the offset relative to the map's first one. Kafka's
``SkimpyOffsetMap`` has 24 bytes (MD5 and the offset), so the same buffer holds half as many keys
again here. A dict would need nine times the memory.

The 96 bits are two values of SipHash-1-3 under the process's own random key. CPython computes them
in a fifth of MD5's time. Among ten million keys the probability of a collision is 10^-15. Clients
cannot choose keys that collide or that make probing slow. With MD5 they can.

The mappings are zero until they are written, so a large buffer costs only its used part.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable

from odradek.log.cleaner.record_spans import RecordSpan

SLOT_BYTES = 16
OFFSETS_MAX = 2**32 - 1
"""Maximum range of offsets in a map: they are stored as 32 bits relative to the first."""
SLOTS_MIN = 11

_SALT = b"\x00odradek"
_CHECK_MASK = 2**32 - 1


class OffsetMap:
    """The map; see the module. `latest_offset` is the last offset that was read into it.

    The map has no information about later records.
    """

    def __init__(
        self, first_offset: int, memory_bytes: int, load_factor: float, keys_max: int
    ) -> None:
        slots_needed = int(keys_max / load_factor) + SLOTS_MIN
        self.first_offset = first_offset
        self.latest_offset = first_offset - 1
        self.slots = _prime_at_most(max(min(memory_bytes // SLOT_BYTES, slots_needed), SLOTS_MIN))
        self.keys_max = max(int(self.slots * load_factor), 1)
        assert self.keys_max < self.slots, "an empty slot ends each probe"
        self._heads = memoryview(mmap.mmap(-1, 8 * self.slots)).cast("q")
        self._checks = memoryview(mmap.mmap(-1, 4 * self.slots)).cast("I")
        self._offsets = memoryview(mmap.mmap(-1, 4 * self.slots)).cast("I")
        self._count = 0
        self.keyless = 0
        """Number of records without a key that `newest` has dropped."""

    def __len__(self) -> int:
        return self._count

    def mark_covered_up_to(self, offset: int) -> None:
        """Note that every record up to `offset` was added, or needs no entry."""
        self.latest_offset = offset

    @property
    def utilization(self) -> float:
        return self._count / self.slots

    def put_records(self, records: Iterable[RecordSpan], base_offset: int) -> bool:
        """Add records in the order of their offsets. Return False when the map is full.

        If it is full, the records up to `latest_offset` are in the map. Records without a key, and
        records before the map's first offset, are skipped.
        """
        heads, checks, offsets, slots = self._heads, self._checks, self._offsets, self.slots
        first, count, keys_max = self.first_offset, self._count, self.keys_max
        for _, _, _, delta, key, _ in records:
            offset = base_offset + delta - first
            if key is None or offset < 0:
                continue
            if count >= keys_max or offset > OFFSETS_MAX:
                self._count = count
                return False
            head = hash(key) or 1
            check = hash(_SALT + key) & _CHECK_MASK
            at = head % slots
            found = heads[at]
            while found and (found != head or checks[at] != check):
                at += 1 + check % (slots - 1)
                if at >= slots:
                    at -= slots
                found = heads[at]
            if not found:
                heads[at], checks[at] = head, check
                count += 1
            offsets[at] = offset
            self.latest_offset = first + offset
        self._count = count
        return True

    def newest(self, records: Iterable[RecordSpan], base_offset: int) -> list[RecordSpan]:
        """Return the records to keep: the newest of each key, and those above `latest_offset`."""
        heads, checks, offsets, slots = self._heads, self._checks, self._offsets, self.slots
        first, latest = self.first_offset, self.latest_offset
        kept = []
        for record in records:
            key, offset = record[4], base_offset + record[3]
            if offset > latest:
                kept.append(record)
                continue
            if key is None:
                self.keyless += 1
                continue
            head = hash(key) or 1
            at = head % slots
            found = heads[at]
            if found:
                check = hash(_SALT + key) & _CHECK_MASK
                while found and (found != head or checks[at] != check):
                    at += 1 + check % (slots - 1)
                    if at >= slots:
                        at -= slots
                    found = heads[at]
            if not found or first + offsets[at] <= offset:
                kept.append(record)
        return kept


def _prime_at_most(number: int) -> int:
    """Return the largest prime <= `number`: double hashing visits all slots only of a prime."""
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number
