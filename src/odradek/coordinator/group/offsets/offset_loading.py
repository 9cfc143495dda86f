"""Fast loading of committed offsets, which are nearly all records of ``__consumer_offsets``.

`OffsetLoader.take` reads the simple batches of a piece of the log. They are not compressed and not
transactional, and each record is an OffsetCommitKey with a value of version 3 or a tombstone. It
refuses any other batch before it changes anything, and that batch takes the general path
(`shard_loading`). Only the last value of each key in a piece is decoded: a group that commits every
second leaves thousands of records of each key between two compactions.

A record's layout is in `odradek.records.record`. Key: int16 1, group and topic (int16 length,
UTF-8), int32 partition. Value: int16 3, int64 offset, int32 leader epoch, metadata (int16 length,
UTF-8), int64 time of the commit.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Protocol

from odradek.coordinator.group.offsets.offset_store import NO_EXPIRY, CommittedOffset, OffsetStore
from odradek.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD,
    TRANSACTIONAL_MASK,
)

_KEY_TYPE = b"\x00\x01"
_VALUE_VERSION = 3
_VALUE = struct.Struct(">hqih")
_TOMBSTONE = -1
# Records that are scanned, and offsets that are stored, in one time slice of about 0.5 ms.
TAKEN_PER_SLICE = 400
PUT_PER_SLICE = 200
# A batch is scanned in one time slice. Larger batches, which no coordinator writes, take the
# general path.
BATCH_RECORDS_MAX = 1_000

_BATCH = struct.Struct(">qi9xhi30xi")
_NOT_PLAIN = COMPRESSION_MASK | TRANSACTIONAL_MASK | CONTROL_MASK

# The record's offset, and the positions where its value begins (_TOMBSTONE: no value) and ends.
ValueSpan = tuple[int, int, int]


class Unusual(Exception):
    """A record for the general path."""


class LoadedShard(Protocol):
    """The shard that is being loaded."""

    offsets: OffsetStore

    def put_offset(
        self, group: str, topic: str, partition: int, value: CommittedOffset
    ) -> None: ...


class OffsetLoader:
    """Loader of the simple batches in one piece of the log. `finish` ends the piece."""

    __slots__ = ("_data", "_latest", "_shard")

    def __init__(self, shard: LoadedShard, data: bytes) -> None:
        self._shard = shard
        self._data = data
        self._latest: dict[bytes, ValueSpan] = {}

    def take(self, pos: int, first: int) -> Generator[None, None, tuple[int, int]]:
        """Take batches from `pos` on, up to the first one for the general path.

        Yields after each time slice. When it stops before the end of the piece, the shard contains
        all records that were taken.

        Args:
            pos: Position in the piece, in bytes.
            first: Records with smaller offsets are left out.

        Returns:
            The position after the last batch that was taken, and the offset after it (0 when none
            was taken).
        """
        data, next_offset, left = self._data, 0, TAKEN_PER_SLICE
        while pos + HEADER_BYTES <= len(data):
            base_offset, length, attributes, delta, count = _BATCH.unpack_from(data, pos)
            end = pos + LOG_OVERHEAD + length
            if attributes & _NOT_PLAIN or end > len(data) or count > BATCH_RECORDS_MAX:
                break
            try:
                found = self._records(pos + HEADER_BYTES, end, base_offset, count)
            except (Unusual, IndexError, struct.error):
                break
            yield from self._keep(found, first)
            pos, next_offset = end, base_offset + delta + 1
            left -= count
            if left <= 0:
                left = TAKEN_PER_SLICE
                yield
        if pos != len(data):
            yield from self.finish()
        return pos, next_offset

    def _keep(
        self, found: list[tuple[bytes, ValueSpan]], first: int
    ) -> Generator[None, None, None]:
        latest = self._latest
        for key, span in found:
            if span[0] < first:
                continue
            if span[1] == _TOMBSTONE and key in latest:
                # The commit before the tombstone creates the group, and the tombstone does not
                # remove the group.
                yield from self.finish()
                latest = self._latest
            latest[key] = span

    def finish(self) -> Generator[None, None, None]:
        """Put the records that were taken into the shard. Yield after each time slice."""
        latest, self._latest = self._latest, {}
        left = PUT_PER_SLICE
        data, put, remove = self._data, self._shard.put_offset, self._shard.offsets.forget
        for key, (record_offset, start, end) in latest.items():
            left -= 1
            if left <= 0:
                left = PUT_PER_SLICE
                yield
            size = key[2] << 8 | key[3]
            group = key[4 : 4 + size].decode()
            topic = key[6 + size : -4].decode()
            partition = int.from_bytes(key[-4:], "big", signed=True)
            if start == _TOMBSTONE:
                remove(group, topic, partition)
                continue
            _, offset, leader_epoch, size = _VALUE.unpack_from(data, start)
            metadata = data[start + _VALUE.size : end - 8].decode() if size else ""
            committed_ms = int.from_bytes(data[end - 8 : end], "big", signed=True)
            put(
                group,
                topic,
                partition,
                CommittedOffset(
                    offset, leader_epoch, metadata, committed_ms, NO_EXPIRY, record_offset
                ),
            )

    def _records(
        self, pos: int, end: int, base_offset: int, count: int
    ) -> list[tuple[bytes, ValueSpan]]:
        """Return the keys and value spans of a batch's records.

        Varints of one byte are read without a call, because this is the inner loop.

        Raises:
            Unusual, IndexError, struct.error: The batch needs the general path.
        """
        data, latest = self._data, self._latest
        found: list[tuple[bytes, ValueSpan]] = []
        for _ in range(count):
            size, pos = _varint(data, pos)
            record_end = pos + size
            pos += 1  # Attributes.
            while data[pos] > 127:  # The difference in time.
                pos += 1
            delta = data[pos + 1]
            if delta < 128:
                delta, pos = delta >> 1, pos + 2
            else:
                delta, pos = _varint(data, pos + 1)
            size = data[pos]
            if size < 128:
                size, pos = (size >> 1) ^ -(size & 1), pos + 1
            else:
                size, pos = _varint(data, pos)
            key = data[pos : pos + size]
            pos += size
            if key not in latest:
                _check_key(key, size)
            size = data[pos]
            if size < 128:
                size, pos = (size >> 1) ^ -(size & 1), pos + 1
            else:
                size, pos = _varint(data, pos)
            if size >= 0:
                _check_value(data, pos, size)
                found.append((key, (base_offset + delta, pos, pos + size)))
                pos += size
            else:
                found.append((key, (base_offset + delta, _TOMBSTONE, 0)))
            # No headers, and nothing after them.
            if data[pos] or pos + 1 != record_end:
                raise Unusual
            pos = record_end
        if pos != end:
            raise Unusual
        return found


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    """Return a zig-zag varint of at most three bytes, and the position after it."""
    number = shift = 0
    for _ in range(3):
        byte = data[pos]
        pos += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), pos
        shift += 7
    raise Unusual


def _check_key(key: bytes, size: int) -> None:
    """Raise Unusual unless the key is an OffsetCommitKey of ASCII names with the right length."""
    if len(key) != size or size < 10 or key[:2] != _KEY_TYPE or not key[2:-4].isascii():
        raise Unusual
    group = key[2] << 8 | key[3]
    if 10 + group > size or 10 + group + (key[4 + group] << 8 | key[5 + group]) != size:
        raise Unusual


def _check_value(data: bytes, pos: int, size: int) -> None:
    """Raise Unusual unless the value is of version 3, with ASCII metadata of the right length."""
    version, _, _, metadata = _VALUE.unpack_from(data, pos)
    if version != _VALUE_VERSION or metadata < 0 or _VALUE.size + metadata + 8 != size:
        raise Unusual
    if metadata and not data[pos + _VALUE.size : pos + size - 8].isascii():
        raise Unusual
