"""Loading committed offsets fast: what nearly every record of ``__consumer_offsets`` is.

`OffsetLoader.take` reads the plain batches of a piece of the log: not compressed, not of a
transaction, every record an OffsetCommitKey with a value of version 3 or without one. It says no to
any other batch before it has done anything, and that batch goes the general way (`runtime`). Of
each key only the last value of a piece is decoded: between two compactions a group that commits
every second leaves thousands of each.

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
# Records that are looked at, and offsets that are stored, in one time slice: about 0.5 ms.
TAKEN_PER_SLICE = 400
PUT_PER_SLICE = 200
# A batch is looked at in one time slice. Larger ones, which no coordinator writes, are read the
# general way.
BATCH_RECORDS_MAX = 1_000

_BATCH = struct.Struct(">qi9xhi30xi")
_NOT_PLAIN = COMPRESSION_MASK | TRANSACTIONAL_MASK | CONTROL_MASK

# The record's offset, and where its value begins (_TOMBSTONE: there is none) and ends.
ValueSpan = tuple[int, int, int]


class Unusual(Exception):
    """A record that is to be read the general way."""


class LoadedShard(Protocol):
    """The shard that is loaded."""

    offsets: OffsetStore

    def put_offset(
        self, group: str, topic: str, partition: int, value: CommittedOffset
    ) -> None: ...


class OffsetLoader:
    """Takes the plain commits of one piece of the log into `shard`; `finish` ends the piece."""

    __slots__ = ("_data", "_latest", "_shard")

    def __init__(self, shard: LoadedShard, data: bytes) -> None:
        self._shard = shard
        self._data = data
        self._latest: dict[bytes, ValueSpan] = {}

    def take(self, pos: int, first: int) -> Generator[None, None, tuple[int, int]]:
        """Reads batches from `pos` of the piece on, up to the first that is not plain; offsets
        before `first` are passed over. Returns where it stopped, and the offset after the last
        batch that it took (0: it took none). All of those are in the shard when it stopped before
        the end of the piece. Yields after each time slice."""
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
                # The commit before it made its group, which the tombstone does not take away.
                yield from self.finish()
                latest = self._latest
            latest[key] = span

    def finish(self) -> Generator[None, None, None]:
        """Puts into the shard what was taken so far. Yields after each time slice."""
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
        """The keys and places of a batch's records; Unusual, IndexError or struct.error when it is
        not plain. The varints are read here where they have one byte: it is the inner loop."""
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
            # No headers, and nothing behind them.
            if data[pos] or pos + 1 != record_end:
                raise Unusual
            pos = record_end
        if pos != end:
            raise Unusual
        return found


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    """A zig-zag varint of at most three bytes, and where it ends."""
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
    """An OffsetCommitKey of plain names, whose two lengths fill it."""
    if len(key) != size or size < 10 or key[:2] != _KEY_TYPE or not key[2:-4].isascii():
        raise Unusual
    group = key[2] << 8 | key[3]
    if 10 + group > size or 10 + group + (key[4 + group] << 8 | key[5 + group]) != size:
        raise Unusual


def _check_value(data: bytes, pos: int, size: int) -> None:
    """A value of version 3 whose plain metadata fills it."""
    version, _, _, metadata = _VALUE.unpack_from(data, pos)
    if version != _VALUE_VERSION or metadata < 0 or _VALUE.size + metadata + 8 != size:
        raise Unusual
    if metadata and not data[pos + _VALUE.size : pos + size - 8].isascii():
        raise Unusual
