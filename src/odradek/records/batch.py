"""Record batch v2: the 61-byte header, read and written in place. The records stay opaque.

Layout, big-endian (`org.apache.kafka.common.record.DefaultRecordBatch`)::

    0   base_offset            int64    written by the leader
    8   batch_length           int32    bytes from here: size of the batch - 12
    12  partition_leader_epoch int32    written by the leader, not covered by the CRC
    16  magic                  int8     2
    17  crc                    uint32   CRC-32C of everything from `attributes` to the end
    21  attributes             int16    bits 0-2 compression, 3 timestamp type, 4 transactional,
                                        5 control, 6 delete horizon
    23  last_offset_delta      int32
    27  base_timestamp         int64
    35  max_timestamp          int64
    43  producer_id            int64
    51  producer_epoch         int16
    53  base_sequence          int32
    57  record_count           int32
    61  records
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from odradek.records.checksum import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
LOG_OVERHEAD = 12
"""Bytes that `batch_length` does not count: base offset and the length itself."""

MAGIC_V2 = 2
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
LOW_ATTRIBUTES_POSITION = ATTRIBUTES_POSITION + 1
MAX_TIMESTAMP_POSITION = 35

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
INT32_MAX = 2**31 - 1

LEADER_FIELDS = struct.Struct(">qii")
"""The fields that the leader writes: base offset, batch length (unchanged), leader epoch."""

OFFSETS = struct.Struct(">qi11xi")
"""Base offset, batch length and last offset delta (27 bytes): enough to find an offset."""

_CRC = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """The low three bits of `attributes`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The header's fields in the order of the wire. Times in milliseconds, sizes in bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def size_bytes(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def compression(self) -> int:
        """The compression bits: a `Compression` if below 5."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return (self.attributes & TIMESTAMP_TYPE_MASK) >> 3

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def last_sequence(self) -> int:
        """-1 without a base sequence. Wraps from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def parse_header(view: Buffer, pos: int = 0) -> BatchHeader:
    """Parse the header at `pos` without further checks.

    Raises:
        struct.error: Fewer than 61 bytes remain.
    """
    return BatchHeader._make(HEADER.unpack_from(view, pos))


def increment_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence, which wraps from 2^31-1 to 0.

    Follows ``DefaultRecordBatch.incrementSequence``.
    """
    moved = sequence + increment
    return moved if moved <= INT32_MAX else moved - INT32_MAX - 1


def crc_is_valid(batch: memoryview) -> bool:
    """Compare the stored CRC-32C with the bytes from `attributes` to the end of `batch`."""
    stored: int = _CRC.unpack_from(batch, CRC_POSITION)[0]
    return crc32c(batch[ATTRIBUTES_POSITION:]) == stored


def write_crc(batch: memoryview | bytearray) -> None:
    """Write the CRC-32C of one whole batch to its header."""
    with memoryview(batch) as view:
        _CRC.pack_into(view, CRC_POSITION, crc32c(view[ATTRIBUTES_POSITION:]))


def set_timestamp_type(batch: memoryview | bytearray, attributes: int, max_timestamp: int) -> None:
    """Replace attributes and max timestamp in place and update the CRC."""
    _INT16.pack_into(batch, ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(batch, MAX_TIMESTAMP_POSITION, max_timestamp)
    write_crc(batch)


def stamp(
    batch: memoryview | bytearray, header: tuple[int, ...], now_ms: int, log_append_time: bool
) -> tuple[int, int]:
    """Set LogAppendTime, or CreateTime. Return the max timestamp and the append time (-1: none)."""
    attributes, max_timestamp = header[5], header[8]
    if log_append_time:
        set_timestamp_type(batch, attributes | TIMESTAMP_TYPE_MASK, now_ms)
        return now_ms, now_ms
    set_timestamp_type(batch, attributes & ~TIMESTAMP_TYPE_MASK, max_timestamp)
    return max_timestamp, NO_TIMESTAMP


def write_varint(out: bytearray, number: int) -> None:
    """Append the zig-zag varint of a signed number of up to 64 bits."""
    bits = (number << 1) ^ (number >> 63)
    while bits > 0x7F:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    out.append(bits)
