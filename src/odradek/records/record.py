"""Single records inside a batch: for coordinators, offsets for timestamps and the command line.

A record begins with a zig-zag varint of its length. It continues with: attributes int8 (unused),
timestamp delta varlong, offset delta varint, key length varint (-1: null) and key, value length
varint and value, number of headers varint. Each header has key length, key (UTF-8), value length
and value (`org.apache.kafka.common.record.DefaultRecord`).

The content is not trusted. Every length is compared with the remaining bytes, and the unpacked size
is limited. Invalid content raises `CorruptRecord`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap

from odradek.records import compression as codec
from odradek.records.batch import (
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Compression,
    parse_header,
    write_crc,
    write_varint,
)

VARINT_BYTES_MAX = 10

Header = tuple[str, bytes | None]


class CorruptRecord(ValueError):
    """The body of a batch does not match its header or its own lengths."""


@dataclass(slots=True)
class Record:
    """One record.

    Attributes:
        timestamp: In milliseconds; -1 means none.
        offset: The absolute offset of a record that was read. A record to be written needs none,
            because its position in the batch decides.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    offset: int = -1
    headers: Sequence[Header] = ()


def read_varint(data: bytes | memoryview | mmap, pos: int, end: int) -> tuple[int, int]:
    """Return the number at `pos` and the position after it.

    Raises:
        CorruptRecord: The varint is cut off or too long.
    """
    bits = shift = 0
    while True:
        if pos >= end or shift >= 7 * VARINT_BYTES_MAX:
            raise CorruptRecord("a varint is cut off or too long")
        byte = data[pos]
        pos += 1
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (bits >> 1) ^ -(bits & 1), pos
        shift += 7


def encode_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    """Append the record, preceded by its length."""
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_nullable(body, record.key)
    _write_nullable(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_nullable(body, name.encode("utf-8"))
        _write_nullable(body, value)
    write_varint(out, len(body))
    out += body


def _write_nullable(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
        return
    write_varint(out, len(value))
    out += value


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    timestamp_ms: int = NO_TIMESTAMP,
    compression: Compression | str = Compression.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
) -> bytearray:
    """Build one whole v2 batch. Offsets count from `base_offset`.

    Args:
        timestamp_ms: The timestamp of records that have none.

    Raises:
        ValueError: There are no records.
    """
    if isinstance(compression, str):
        compression = Compression[compression.upper()]
    body = bytearray()
    base_timestamp = max_timestamp = timestamp_ms
    count = 0
    for record in records:
        stamp = record.timestamp if record.timestamp != NO_TIMESTAMP else timestamp_ms
        base_timestamp = stamp if count == 0 else base_timestamp
        max_timestamp = stamp if count == 0 else max(max_timestamp, stamp)
        encode_record(body, record, stamp - base_timestamp, count)
        count += 1
    if count == 0:
        raise ValueError("a batch needs at least one record")
    payload = codec.compress(compression, bytes(body), level)
    attributes = int(compression)
    attributes |= TRANSACTIONAL_MASK if transactional else 0
    attributes |= CONTROL_MASK if control else 0
    batch = bytearray(HEADER_BYTES + len(payload))
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch[HEADER_BYTES:] = payload
    write_crc(batch)
    return batch


def iter_records(
    batch: bytes | bytearray | memoryview,
    bytes_max: int = codec.DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """Yield the records of one whole batch in order, unpacked to at most `bytes_max` bytes.

    The CRC is not checked: code that reads untrusted bytes checks it first.

    Raises:
        CorruptRecord: A record does not match its lengths. Earlier records were already yielded.
    """
    if len(batch) < HEADER_BYTES:
        raise CorruptRecord(f"{len(batch)} bytes are too short for a batch")
    header = parse_header(batch)
    yield from records_of(body_of(batch, header, bytes_max), header)


def records_of(body: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of an unpacked body. Raise CorruptRecord as `iter_records` does."""
    pos, end = 0, len(body)
    for _ in range(header.record_count):
        length, pos = read_varint(body, pos, end)
        if not 0 < length <= end - pos:
            raise CorruptRecord(f"a record of {length} bytes does not fit in {end - pos}")
        yield _decode_record(body, pos, pos + length, header)
        pos += length


def iter_batches(
    data: bytes | bytearray | memoryview,
) -> Iterator[memoryview]:
    """Yield the whole batches in `data` in order. An incomplete last batch is ignored."""
    view = memoryview(data)
    pos = 0
    while pos + HEADER_BYTES <= len(view):
        size = LOG_OVERHEAD + int.from_bytes(view[pos + 8 : pos + 12], "big", signed=True)
        if size < HEADER_BYTES or pos + size > len(view):
            return
        yield view[pos : pos + size]
        pos += size


def body_of(
    batch: bytes | bytearray | memoryview,
    header: BatchHeader,
    bytes_max: int = codec.DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """Return the unpacked bytes after the header.

    Raises:
        CorruptRecord: They cannot be unpacked.
    """
    if header.compression > Compression.ZSTD:
        raise CorruptRecord(f"unknown compression type id: {header.compression}")
    packed = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    try:
        return codec.decompress(Compression(header.compression), packed, bytes_max)
    except codec.CorruptCompression as error:
        raise CorruptRecord(str(error)) from error


def _decode_record(data: bytes, pos: int, end: int, header: BatchHeader) -> Record:
    timestamp_delta, pos = read_varint(data, pos + 1, end)
    offset_delta, pos = read_varint(data, pos, end)
    key, pos = _read_nullable(data, pos, end)
    value, pos = _read_nullable(data, pos, end)
    headers, pos = _read_headers(data, pos, end)
    if pos != end:
        raise CorruptRecord(f"{end - pos} bytes are left over after a record")
    if header.attributes & TIMESTAMP_TYPE_MASK:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + timestamp_delta
    return Record(key, value, timestamp, header.base_offset + offset_delta, headers)


def _read_nullable(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(data, pos, end)
    if length < 0:
        return None, pos
    if length > end - pos:
        raise CorruptRecord(f"{length} bytes do not fit in {end - pos}")
    return data[pos : pos + length], pos + length


def _read_headers(data: bytes, pos: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, pos = read_varint(data, pos, end)
    if count == 0:
        return (), pos
    if not 0 < count <= end - pos:
        raise CorruptRecord(f"{count} headers do not fit in {end - pos} bytes")
    headers: list[Header] = []
    for _ in range(count):
        name, pos = _read_nullable(data, pos, end)
        if name is None:
            raise CorruptRecord("a header has no key")
        value, pos = _read_nullable(data, pos, end)
        headers.append((decode_header_key(name), value))
    return tuple(headers), pos


def decode_header_key(name: bytes) -> str:
    """Return the key of a record header as text.

    Raises:
        CorruptRecord: The key is not UTF-8.
    """
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecord("a header's key is not UTF-8") from error
