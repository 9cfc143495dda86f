"""Checks and searches over the records of one unpacked batch, in time slices.

A Python loop in a thread holds the interpreter lock, so these loops run on the event loop. Each is
a generator that yields at the end of a slice. The number of records limits a slice, so a test can
count slices. The loops read varints of the usual sizes inline and build no objects. A record that
they do not accept is passed to `_check_record`, which uses the decoder's functions and raises its
errors. For the layout see `odradek.records.record`.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from functools import cache

from odradek.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
)
from odradek.records.compression import COPIED_BYTES_MAX, Body
from odradek.records.record import CorruptRecord, decode_header_key, read_varint

RECORDS_A_SLICE = 1_000
"""Records of the usual form that are checked in one slice: about half a millisecond."""
UNUSUAL_RECORD_COST = 10
"""A record of another form counts as this many records."""
TIMESTAMPS_A_SLICE = 2_000
"""Records whose timestamps are compared in one slice."""
DECODED_A_SLICE = 500
"""Records whose varints are read by calls in one slice."""
HEADERS_A_SLICE = 100
HEADERS_AT_ONCE = 8
"""A record with more headers takes slices of its own."""

_NULL = 1
"""The varint of -1, which is the length of a null key or value."""
VALUE_BYTES_SHORT_MAX = 63
VALUE_BYTES_USUAL_MAX = 8_191
"""The largest values whose length has one byte, and two bytes."""
ONE_BYTE_DELTAS = 64
TWO_BYTE_DELTAS = 8_192
"""Smaller offset deltas have one byte, and two bytes."""
RUN_MIN = 8
"""Minimum number of records of the same sizes that are checked together."""
STRETCH_MIN = 64
"""Records that are checked one by one after a failed search for a run, before the next search."""
RECORD_LENGTH_MIN = 6
"""The length of an empty record: five varints of one byte after the attributes."""
_CONTINUED = bytes(range(0x80, 0x100))
"""The bytes of a varint that are not its last one."""
_unpack_start = struct.Struct("<H5B").unpack_from
_unpack_shape = struct.Struct(">8xi9xh34xi").unpack_from
"""Fields of a batch's header: batch length, attributes, number of records."""
_unpack_length_and_timestamp = struct.Struct("7B").unpack_from


def check_records(body: Body, count: int) -> Generator[None, None, tuple[list[int], int]]:
    """Check that `count` records decode and have the offset deltas 0, 1, 2, ...

    Yields at the end of each slice. Bytes after the last record are not read.

    Returns:
        The indexes of the records without a key, and the position after the last record.

    Raises:
        CorruptRecord: The first record that `iter_records` refuses, with the same text, or that has
            a wrong offset delta.
    """
    keyless: list[int] = []
    index = position = 0
    left = RECORDS_A_SLICE
    while index < count:
        first = index
        end = min(index + left, count)
        index, position = _check_runs(body, position, index, end, keyless)
        left -= index - first
        if index < end:
            # Records of a batch are similar: after one of another form, expect more of that form.
            others = 1 if index > first else max(1, left // UNUSUAL_RECORD_COST)
            end = min(index + others, count)
            left -= (end - index) * UNUSUAL_RECORD_COST
            index, position = _check_others(body, position, index, end, keyless)
            if index < end:
                position, key_length = yield from _check_record(body, position, index)
                if key_length < 0:
                    keyless.append(index)
                index += 1
                left = 0
        if left <= 0 and index < count:
            left = RECORDS_A_SLICE
            yield
    return keyless, position


def is_usual(batch: memoryview) -> bool:
    """Return whether the batch is small and uncompressed, and its records are valid and have keys.

    The check needs no generator. False says nothing about the batch. Header and CRC are not
    checked, because the append validates them.
    """
    size = len(batch) - HEADER_BYTES
    if not 0 < size <= COPIED_BYTES_MAX:
        return False
    length, attributes, count = _unpack_shape(batch)
    if (
        length != len(batch) - LOG_OVERHEAD
        or attributes & COMPRESSION_MASK
        or not 0 < count <= RECORDS_A_SLICE
    ):
        return False
    keyless: list[int] = []
    checked, _ = _check_runs(Body(bytes(batch[HEADER_BYTES:]), size), 0, 0, count, keyless)
    return checked == count and not keyless


def _check_runs(
    body: Body, position: int, index: int, end: int, keyless: list[int]
) -> tuple[int, int]:
    """Check as `_check_usual` does, but runs of records that have the same sizes together."""
    stretch = STRETCH_MIN
    while index < end:
        template = position
        done, position = _check_usual(body, position, index, index + 1, keyless)
        if done == index:
            break
        index, position = _skip_run(body, template, position, done, end)
        if index > done:
            continue
        stretch_end = min(index + stretch, end)
        stretch *= 2
        index, position = _check_usual(body, position, index, stretch_end, keyless)
        if index < stretch_end:
            break
    return index, position


def _skip_run(  # noqa: C901 - one condition for each field
    body: Body, template: int, position: int, index: int, end: int
) -> tuple[int, int]:
    """Skip the records after a usual one, at `template`, that have the same sizes and a key.

    The bytes at one position in all of these records are compared by a few calls. Return the index
    and the position after them, or of the first record if there is no long run.
    """
    data, span, none = body.data, position - template, (index, position)
    count = min(end - index, (body.size - position) // span)
    if count < RUN_MIN or data[position] != data[template]:
        return none
    stamp = 2 if data[template] < 0x80 else 3
    delta = stamp + (1 if data[template + stamp] < 0x80 else 2)
    key = delta + (1 if data[template + delta] < 0x80 else 2)
    if key - delta != (1 if index < ONE_BYTE_DELTAS else 2) or data[template + key] & 0x81:
        return none
    limit = ONE_BYTE_DELTAS if index < ONE_BYTE_DELTAS else TWO_BYTE_DELTAS
    count = min(count, limit - index)
    value = key + 1 + (data[template + key] >> 1)
    same = [*range(stamp - 1), key, value, span - 1]
    if data[template + value] >= 0x80:
        same.append(value + 1)
    for at in same:
        column = bytes(data[position + at : position + count * span : span])
        count -= len(column.lstrip(bytes((data[template + at],))))
        if count < RUN_MIN:
            return none
    behind = position + count * span
    for at in range(stamp, delta - 1):
        if bytes(data[position + at : behind : span]).translate(None, _CONTINUED):
            return none
    if not bytes(data[position + delta - 1 : behind : span]).isascii():
        return none
    low, high = _offset_deltas()
    if index < ONE_BYTE_DELTAS:
        low = bytes(range(0, 2 * ONE_BYTE_DELTAS, 2))
    elif bytes(data[position + delta + 1 : behind : span]) != high[index : index + count]:
        return none
    if bytes(data[position + delta : behind : span]) != low[index : index + count]:
        return none
    return index + count, behind


def _check_usual(  # noqa: C901 - calls for each varint would double the time
    body: Body, position: int, first: int, end: int, keyless: list[int]
) -> tuple[int, int]:
    """Check records from index `first` to `end` (exclusive) that have the usual form.

    The length has one or two bytes, the timestamp delta one or two, the offset delta up to three.
    The key has less than 64 bytes, and there are no headers. Return the index and the position of
    the first record that was not checked.
    """
    data, size, unpack, index_twice = body.data, body.size, _unpack_start, 2 * first
    spans, value_lengths = _spans(), _value_lengths()
    try:
        for index_twice in range(2 * first, 2 * end, 2):
            # Length, attributes and timestamp delta, and the beginning of the offset delta.
            length, b, c, d, e, f = unpack(data, position)
            stop = position + spans[length]
            if stop > size:
                break
            if length & 0x80:
                at = position + 6
            else:
                c, d, e, f, at = b, c, d, e, position + 5
            if c < 0x80:
                if d < 0x80:
                    delta, key = d, e
                elif e < 0x80:
                    delta, key, at = d & 0x7F | e << 7, f, at + 1
                elif f < 0x80:
                    delta, key, at = d & 0x7F | (e & 0x7F) << 7 | f << 14, data[at + 1], at + 2
                else:
                    break
            elif d >= 0x80:
                break
            elif e < 0x80:
                delta, key, at = e, f, at + 1
            elif f < 0x80:
                delta, key, at = e & 0x7F | f << 7, data[at + 1], at + 2
            elif data[at + 1] < 0x80:
                delta = e & 0x7F | (f & 0x7F) << 7 | data[at + 1] << 14
                key, at = data[at + 2], at + 3
            else:
                break
            if delta != index_twice or (key & 0x81 and key != _NULL):
                break
            # The value must end before the last byte, which is the number of headers.
            at += key >> 1
            left = stop - at
            if left > VALUE_BYTES_SHORT_MAX + 2:
                if data[at : at + 2] != value_lengths[left]:
                    break
            elif data[at] != 2 * left - 4 and (left != 2 or data[at] != _NULL):
                break
            if data[stop - 1]:
                break
            if key == _NULL:
                keyless.append(index_twice >> 1)
            position = stop
        else:
            return end, position
    except (struct.error, IndexError):
        pass  # the body ends in this record, or its value is long
    return index_twice >> 1, position


@cache
def _spans() -> list[int]:
    """Return the size of a record by the first two bytes (little-endian) of its length.

    A length of another size, or a negative one, has a size that no body has.
    """
    spans = [1 << 60] * 65_536
    for low in range(0, 0x80, 2):
        spans[low::256] = [1 + (low >> 1)] * 256
        spans[low | 0x80 : 0x8000 : 256] = range(2 + (low >> 1), 2 + (low >> 1) + 64 * 128, 64)
    return spans


@cache
def _offset_deltas() -> tuple[bytes, bytes]:
    """Return the first and the second byte of the two-byte offset deltas, by their index."""
    indexes = range(TWO_BYTE_DELTAS)
    return bytes(2 * at & 0x7F | 0x80 for at in indexes), bytes(at >> 6 for at in indexes)


@cache
def _value_lengths() -> list[bytes]:
    """Return the encoded two-byte length of a value.

    The index is the number of bytes from the length to the end of the record.
    """
    unused = VALUE_BYTES_SHORT_MAX + 3
    values = range(VALUE_BYTES_SHORT_MAX + 1, VALUE_BYTES_USUAL_MAX + 1)
    lengths = [bytes((2 * value & 0x7F | 0x80, value >> 6)) for value in values]
    # One length has two bytes, and the number of headers one.
    return [b""] * (unused + 1) + lengths


def _check_others(  # noqa: C901 - calls for each varint would double the time
    body: Body, position: int, first: int, end: int, keyless: list[int]
) -> tuple[int, int]:
    """Check as `_check_usual` does, for valid records of any form with few headers.

    Reads may pass the end of a record, so a record counts only if its last field ends there.
    """
    data, size = body.data, body.size
    index = first
    try:
        for index in range(first, end):
            byte = data[position]
            if byte < 0x80:
                length, at = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, at = read_varint(data, position, size)
            stop = at + length
            if length <= 0 or stop > size:
                return index, position
            byte = data[at + 1]
            if byte < 0x80:
                _, at = (byte >> 1) ^ -(byte & 1), at + 1 + 1
            else:
                _, at = read_varint(data, at + 1, size)
            byte = data[at]
            if byte < 0x80:
                delta, at = (byte >> 1) ^ -(byte & 1), at + 1
            else:
                delta, at = read_varint(data, at, size)
            byte = data[at]
            if byte < 0x80:
                key_length, at = (byte >> 1) ^ -(byte & 1), at + 1
            else:
                key_length, at = read_varint(data, at, size)
            if key_length > 0:
                at += key_length
            byte = data[at]
            if byte < 0x80:
                length, at = (byte >> 1) ^ -(byte & 1), at + 1
            else:
                length, at = read_varint(data, at, size)
            if length > 0:
                at += length
            if data[at]:
                at = _skip_headers(body, at)
            else:
                at += 1
            if at != stop or delta != index:
                return index, position
            if key_length < 0:
                keyless.append(index)
            position = stop
    except (IndexError, CorruptRecord, UnicodeDecodeError):
        return index, position
    return end, position


def _skip_headers(body: Body, at: int) -> int:
    """Return the position after the headers of a record, or -1 if there are many."""
    data, size = body.data, body.size
    count = data[at]
    if count & 1 or count > 2 * HEADERS_AT_ONCE:
        return -1
    at += 1
    for _ in range(count >> 1):
        byte = data[at]
        if byte < 0x80:
            length, at = (byte >> 1) ^ -(byte & 1), at + 1
        else:
            length, at = read_varint(data, at, size)
        if length < 0:
            return -1
        name = bytes(data[at : at + length])
        if not name.isascii():
            name.decode("utf-8")
        byte = data[at + length]
        if byte < 0x80:
            length, at = (byte >> 1) ^ -(byte & 1), at + length + 1
        else:
            length, at = read_varint(data, at + length, size)
        if length > 0:
            at += length
    return at


def _check_record(body: Body, position: int, index: int) -> Generator[None, None, tuple[int, int]]:
    """Check one record with the decoder's functions.

    Yields within the headers of a record that has many.

    Returns:
        The position after the record, and the length of its key.
    """
    data = body.data
    length, position = read_varint(data, position, body.size)
    if not 0 < length <= body.size - position:
        raise CorruptRecord(f"a record of {length} bytes does not fit in {body.size - position}")
    stop = position + length
    _, position = read_varint(data, position + 1, stop)
    delta, position = read_varint(data, position, stop)
    key_length, position = _skip_nullable(body, position, stop)
    _, position = _skip_nullable(body, position, stop)
    headers, position = read_varint(data, position, stop)
    if headers:
        if not 0 < headers <= stop - position:
            raise CorruptRecord(f"{headers} headers do not fit in {stop - position} bytes")
        position = yield from _check_headers(body, position, stop, headers)
    if position != stop:
        raise CorruptRecord(f"{stop - position} bytes are left over after a record")
    if delta != index:
        raise CorruptRecord(f"record {index} has the offset delta {delta}")
    return position, key_length


def _check_headers(body: Body, position: int, stop: int, count: int) -> Generator[None, None, int]:
    for number in range(count):
        length, after = _skip_nullable(body, position, stop)
        if length < 0:
            raise CorruptRecord("a header has no key")
        _, position = _skip_nullable(body, after, stop)
        decode_header_key(bytes(body.data[after - length : after]))
        if number % HEADERS_A_SLICE == HEADERS_A_SLICE - 1:
            yield
    return position


def _skip_nullable(body: Body, position: int, stop: int) -> tuple[int, int]:
    """Return the length (negative for null) and the position after a nullable byte string."""
    length, position = read_varint(body.data, position, stop)
    if length < 0:
        return length, position
    if length > stop - position:
        raise CorruptRecord(f"{length} bytes do not fit in {stop - position}")
    return length, position + length


def check_offset_deltas(body: Body, count: int) -> Generator[None, None, None]:
    """Check that the body is `count` records with the offset deltas 0, 1, 2, ...

    Yields at the end of each slice. Keys, values and headers are not read. Bytes after the last
    record are an error.

    Raises:
        CorruptRecord: A record has a wrong length or offset delta, or bytes are left over.
    """
    data, size, position = body.data, body.size, 0
    for index in range(count):
        length, position = read_varint(data, position, size)
        if not 0 < length <= size - position:
            raise CorruptRecord(
                f"record {index} of {length} bytes does not fit in {size - position}"
            )
        stop = position + length
        byte = data[position + 1] if length > 1 else 0x80
        after = position + 2 if byte < 0x80 else read_varint(data, position + 1, stop)[1]
        delta, _ = read_varint(data, after, stop)
        if delta != index:
            raise CorruptRecord(f"record {index} has the offset delta {delta}")
        position = stop
        if index % DECODED_A_SLICE == DECODED_A_SLICE - 1:
            yield
    if position != size:
        raise bytes_left_over(size - position, count)


def bytes_left_over(size: int, count: int) -> CorruptRecord:
    """Return the error for bytes after the records of a batch."""
    return CorruptRecord(f"{size} bytes are left over after {count} records")


def find_timestamp(
    body: Body, header: BatchHeader, timestamp: int, start_offset: int, count: int
) -> Generator[None, None, tuple[int, int] | None]:
    """Return timestamp and offset of the first of `count` records that is recent enough.

    That is the first record at or above `start_offset` whose timestamp is at least `timestamp`. The
    result is None if there is none. Yields at the end of each slice. Only the length and the
    timestamp of a record are read, and its offset if the timestamp matches.

    Raises:
        CorruptRecord: A length does not fit.
    """
    data, size, position = body.data, body.size, 0
    append_time = header.attributes & TIMESTAMP_TYPE_MASK
    if append_time and header.max_timestamp < timestamp:
        return None
    # With LogAppendTime all records have the largest timestamp of the batch.
    delta_min = -(1 << 70) if append_time else timestamp - header.base_timestamp
    left = TIMESTAMPS_A_SLICE
    while count > 0:
        records = min(count, left)
        skipped, position = _skip_older(body, position, delta_min, records)
        count -= skipped
        left -= skipped
        if skipped < records:
            length, at = read_varint(data, position, size)
            if not RECORD_LENGTH_MIN <= length <= size - at:
                raise CorruptRecord(f"a record of {length} bytes does not fit in {size - at}")
            position = at + length
            delta, at = read_varint(data, at + 1, position)
            if delta >= delta_min:
                offset = header.base_offset + read_varint(data, at, position)[0]
                if offset >= start_offset:
                    found = header.max_timestamp if append_time else header.base_timestamp + delta
                    return found, offset
            count -= 1
            left -= UNUSUAL_RECORD_COST
        if left <= 0 and count > 0:
            left = TIMESTAMPS_A_SLICE
            yield
    return None


def _skip_older(  # noqa: C901 - calls for each varint would double the time
    body: Body, position: int, delta_min: int, count: int
) -> tuple[int, int]:
    """Skip records of the usual form whose timestamp delta is below `delta_min`.

    The length of such a record has one or two bytes, the timestamp delta up to four. Return the
    number of the skipped records and the position after them.
    """
    data, size, unpack = body.data, body.size, _unpack_length_and_timestamp
    delta_min_twice = 2 * delta_min
    index = 0
    try:
        for index in range(count):
            a, b, c, d, e, f, g = unpack(data, position)
            if a < 0x80:
                stop = position + 1 + (a >> 1)
            elif b < 0x80:
                stop = position + 2 + ((a & 0x7F | b << 7) >> 1)
                c, d, e, f = d, e, f, g
            else:
                return index, position
            if a & 1 or stop > size or stop - position <= RECORD_LENGTH_MIN:
                return index, position
            if c >= 0x80:
                if d < 0x80:
                    c = c & 0x7F | d << 7
                elif e < 0x80:
                    c = c & 0x7F | (d & 0x7F) << 7 | e << 14
                elif f < 0x80:
                    c = c & 0x7F | (d & 0x7F) << 7 | (e & 0x7F) << 14 | f << 21
                else:
                    return index, position
            # An odd varint is a negative number: too old, unless negative deltas are accepted.
            if c >= delta_min_twice and (not c & 1 or delta_min <= 0):
                return index, position
            position = stop
    except struct.error:
        return index, position  # the body ends in this record
    return count, position


def largest_timestamp(
    body: Body, header: BatchHeader, start_offset: int
) -> Generator[None, None, int | None]:
    """Return the largest timestamp of the records from `start_offset`, or None without records.

    Yields at the end of each slice.

    Raises:
        CorruptRecord: A length does not fit.
    """
    data, size, position = body.data, body.size, 0
    largest: int | None = None
    for index in range(header.record_count):
        length, at = read_varint(data, position, size)
        if not RECORD_LENGTH_MIN <= length <= size - at:
            raise CorruptRecord(f"a record of {length} bytes does not fit in {size - at}")
        position = at + length
        delta, at = read_varint(data, at + 1, position)
        if largest is None or delta > largest:
            offset_delta, _ = read_varint(data, at, position)
            if header.base_offset + offset_delta >= start_offset:
                largest = delta
        if index % DECODED_A_SLICE == DECODED_A_SLICE - 1:
            yield
    if largest is None or header.attributes & TIMESTAMP_TYPE_MASK:
        return None if largest is None else header.max_timestamp
    return header.base_timestamp + largest
