"""Records inside an unpacked batch as spans of bytes. Kept records are copied, not rebuilt.

The layout of a record is in `odradek.records.record`. A record that does not fit its own lengths,
or the offsets of its batch, raises `CorruptRecord`.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.records.batch import write_varint
from odradek.records.record import CorruptRecord, read_varint

RecordSpan = tuple[int, int, int, int, bytes | None, bool]
"""Start (of the length field), end, timestamp delta, offset delta, key, whether it has a value."""

_NULL = 1
"""A varint of -1: the length of a null value."""


def parse_records(body: bytes, count: int, last_offset_delta: int) -> list[RecordSpan]:
    """Return the spans of the `count` records of a batch."""
    try:
        return _parse(body, count, last_offset_delta)
    except IndexError:
        raise CorruptRecord("a record is cut off") from None


def _parse(body: bytes, count: int, last_offset_delta: int) -> list[RecordSpan]:  # noqa: C901
    """Parse the records. Varints of one byte and lengths of two are read inline.

    Calls would double the time.
    """
    spans: list[RecordSpan] = []
    pos, size, previous = 0, len(body), -1
    for _ in range(count):
        start = pos
        byte, second = body[pos], body[pos + 1]
        if byte < 0x80:
            length, pos = (byte >> 1) ^ -(byte & 1), pos + 1
        elif second < 0x80:
            length, pos = ((byte & 0x7F | second << 7) >> 1) ^ -(byte & 1), pos + 2
        else:
            length, pos = read_varint(body, pos, size)
        end = pos + length
        if not 0 < length <= size - pos:
            raise CorruptRecord(f"a record of {length} bytes does not fit in {size - pos}")
        pos += 1
        byte = body[pos]
        if byte < 0x80:
            stamp, pos = (byte >> 1) ^ -(byte & 1), pos + 1
        else:
            stamp, pos = read_varint(body, pos, end)
        byte = body[pos]
        if byte < 0x80:
            delta, pos = (byte >> 1) ^ -(byte & 1), pos + 1
        else:
            delta, pos = read_varint(body, pos, end)
        if not previous < delta <= last_offset_delta:
            raise CorruptRecord(f"an offset delta of {delta} follows {previous}")
        previous = delta
        byte = body[pos]
        if byte < 0x80:
            key_length, pos = (byte >> 1) ^ -(byte & 1), pos + 1
        else:
            key_length, pos = read_varint(body, pos, end)
        key = None
        if key_length >= 0:
            key = body[pos : pos + key_length]
            pos += key_length
        if pos >= end:
            raise CorruptRecord(f"a key of {key_length} bytes does not fit in its record")
        spans.append((start, end, stamp, delta, key, body[pos] != _NULL))
        pos = end
    if pos != size:
        raise CorruptRecord(f"{size - pos} bytes are left over after {count} records")
    return spans


def join_records(body: bytes, records: Sequence[RecordSpan]) -> bytes:
    """Return the unchanged bytes of these records. Adjacent records are copied together."""
    pieces = []
    first, last = records[0][:2]
    for start, end, *_ in records[1:]:
        if start != last:
            pieces.append(body[first:last])
            first = start
        last = end
    pieces.append(body[first:last])
    return b"".join(pieces)


def shift_timestamps(body: bytes, records: Sequence[RecordSpan], shift_ms: int) -> bytes:
    """Return the bytes of these records with `shift_ms` added to each timestamp delta."""
    out = bytearray()
    for start, end, stamp, _, _, _ in records:
        _, pos = read_varint(body, start, end)
        _, behind = read_varint(body, pos + 1, end)
        delta = bytearray()
        write_varint(delta, to_int64(stamp + shift_ms))
        write_varint(out, 1 + len(delta) + end - behind)
        out.append(body[pos])
        out += delta
        out += body[behind:end]
    return bytes(out)


def to_int64(number: int) -> int:
    """Wrap `number` to 64 bits, as Java does: a client's timestamps may overflow when added."""
    return (number + (1 << 63) & (1 << 64) - 1) - (1 << 63)
