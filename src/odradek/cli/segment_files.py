"""Entries of a segment's files, with the errors that the entries contain.

Formats: `odradek.records.batch` (log), `odradek.log.segments.offset_index`, `time_index`,
`transaction_index`, `producer_state` (snapshot). All are big-endian. An index is checked against
the log of the same segment, if that file exists. Entries are dicts. An entry with the key "error"
reports an error.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odradek.cli.output import text_or_base64
from odradek.log.segments.time_index import ENTRY as TIME_ENTRY
from odradek.log.segments.transaction_index import ENTRY as TXN_ENTRY
from odradek.log.state.producer_state_manager import SNAPSHOT_ENTRY
from odradek.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    Compression,
    crc_is_valid,
    parse_header,
)
from odradek.records.checksum import crc32c
from odradek.records.control import read_marker
from odradek.records.record import CorruptRecord, iter_records

Entry = dict[str, Any]

_OFFSET_ENTRY = struct.Struct(">ii")
_SNAPSHOT_PREFIX = struct.Struct(">hIi")
_SNAPSHOT_NAMES = (
    "producer_id",
    "epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "timestamp",
    "coordinator_epoch",
    "current_txn_first_offset",
)
_CRC_COVERS_FROM = 6


def dump(path: Path, *, records: bool) -> Iterator[Entry]:
    """Return the entries of a file of any of the five kinds.

    Raises:
        ValueError: The file has another suffix.
    """
    match path.suffix:
        case ".log":
            return dump_log(path, records=records)
        case ".index":
            return _dump_index(path, _OFFSET_ENTRY)
        case ".timeindex":
            return _dump_index(path, TIME_ENTRY)
        case ".txnindex":
            return _dump_txn_index(path)
        case ".snapshot":
            return _dump_snapshot(path)
    raise ValueError(f"{path.name} is not a .log, .index, .timeindex, .txnindex or .snapshot file.")


def dump_log(path: Path, *, records: bool) -> Iterator[Entry]:
    """Yield an entry for each batch, which contains its records if `records` is true."""
    next_offset = int(path.stem) if path.stem.isdigit() else 0
    with _mapped(path) as view:
        end = 0
        for position, batch, header in _batches(view):
            # Release the view before the entry is yielded, because the caller may stop reading.
            with batch:
                entry = _checked_batch(position, batch, header, next_offset)
                if records and "error" not in entry:
                    entry |= _records(batch, header)
            yield entry
            next_offset = header.last_offset + 1
            end = position + header.size_bytes
        if end < len(view):
            yield {"position": end, "error": f"{len(view) - end} bytes after the last whole batch"}


def _checked_batch(
    position: int, batch: memoryview, header: BatchHeader, next_offset: int
) -> Entry:
    """Return the batch's entry, with its transaction marker or its error."""
    entry = _batch_entry(position, header)
    if header.magic != 2:
        entry["error"] = f"magic {header.magic}"
    elif not crc_is_valid(batch):
        entry["error"] = "wrong CRC"
    elif header.base_offset < next_offset:
        entry["error"] = f"base offset is below {next_offset}, the next offset"
    if header.is_control:
        marker = read_marker(batch)
        entry["marker"] = marker and ("commit" if marker.committed else "abort")
    return entry


def _batches(view: memoryview) -> Iterator[tuple[int, memoryview, BatchHeader]]:
    """Yield the whole batches with their positions, up to the first bytes that are no batch."""
    position = 0
    while position + HEADER_BYTES <= len(view):
        header = parse_header(view, position)
        size = LOG_OVERHEAD + header.batch_length
        if size < HEADER_BYTES or position + size > len(view):
            return
        yield position, view[position : position + size], header
        position += size


def _batch_entry(position: int, header: BatchHeader) -> Entry:
    known = header.compression in Compression._value2member_map_
    return {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "size": header.size_bytes,
        "leader_epoch": header.partition_leader_epoch,
        "compression": Compression(header.compression).name.lower()
        if known
        else str(header.compression),
        "timestamp_type": "LogAppendTime" if header.timestamp_type else "CreateTime",
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
    }


def _records(batch: memoryview, header: BatchHeader) -> Entry:
    """Return the records up to the first unreadable one, and the error, if any."""
    found = []
    error: Entry = {}
    try:
        for record in iter_records(batch):
            found.append(
                {
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    **text_or_base64("key", record.key),
                    **text_or_base64("value", record.value),
                    "headers": [
                        {"key": str(name), **text_or_base64("value", value)}
                        for name, value in record.headers
                    ],
                }
            )
    except CorruptRecord as reason:
        error = {"error": f"records cannot be read: {reason}"}
    if not error and len(found) != header.record_count:
        error = {"error": f"{len(found)} records, but the header says {header.record_count}"}
    return {"records": found, **error}


def _dump_index(path: Path, layout: struct.Struct) -> Iterator[Entry]:
    """Yield the entries of an offset or time index. Check their order and compare with the log."""
    base = int(path.stem) if path.stem.isdigit() else 0
    data = path.read_bytes()
    batches = _headers(path.with_suffix(".log"))
    before: tuple[int, int] | None = None
    for pos in range(0, len(data) - layout.size + 1, layout.size):
        pair: tuple[int, int] = layout.unpack_from(data, pos)
        if not any(pair) and (before is not None or layout is TIME_ENTRY):
            break  # space that Kafka preallocated
        if layout is TIME_ENTRY:
            entry, error = _time_entry(base, pair, batches)
        else:
            entry, error = _offset_entry(base, pair, batches)
        if before is not None and not (before[0] <= pair[0] and before[1] <= pair[1]):
            error = "the entry is lower than the entry before it"
        before = pair
        yield entry | ({"error": error} if error else {})
    if len(data) % layout.size:
        yield {"error": f"{len(data) % layout.size} bytes after the last entry"}


def _offset_entry(
    base: int, pair: tuple[int, int], batches: dict[int, BatchHeader] | None
) -> tuple[Entry, str | None]:
    offset, position = base + pair[0], pair[1]
    entry = {"offset": offset, "position": position}
    if batches is None:
        return entry, None
    header = batches.get(position)
    if header is None:
        return entry, "no batch begins at this position"
    if not header.base_offset <= offset <= header.last_offset:
        return entry, f"the batch there has offsets {header.base_offset} to {header.last_offset}"
    return entry, None


def _time_entry(
    base: int, pair: tuple[int, int], batches: dict[int, BatchHeader] | None
) -> tuple[Entry, str | None]:
    timestamp, offset = pair[0], base + pair[1]
    entry = {"timestamp": timestamp, "offset": offset}
    up_to = [each for each in (batches or {}).values() if each.base_offset <= offset]
    if up_to and max(each.max_timestamp for each in up_to) > timestamp:
        return entry, "a batch up to this offset has a larger timestamp"
    return entry, None


def _dump_txn_index(path: Path) -> Iterator[Entry]:
    data = path.read_bytes()
    markers = _abort_markers(path.with_suffix(".log"))
    for pos in range(0, len(data) - TXN_ENTRY.size + 1, TXN_ENTRY.size):
        version, producer_id, first, last, stable = TXN_ENTRY.unpack_from(data, pos)
        entry = {
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }
        if version != 0:
            entry["error"] = f"version {version}"
        elif markers is not None and markers.get(last) != producer_id:
            entry["error"] = f"no abort marker of this producer at offset {last}"
        yield entry
    if len(data) % TXN_ENTRY.size:
        yield {"error": f"{len(data) % TXN_ENTRY.size} bytes after the last entry"}


def _dump_snapshot(path: Path) -> Iterator[Entry]:
    data = path.read_bytes()
    if len(data) < _SNAPSHOT_PREFIX.size:
        yield {"error": "the file is cut off"}
        return
    version, crc, count = _SNAPSHOT_PREFIX.unpack_from(data)
    if version != 1:
        yield {"error": f"version {version}"}
        return
    if crc32c(data[_CRC_COVERS_FROM:]) != crc:
        yield {"error": "wrong CRC"}
    pos = _SNAPSHOT_PREFIX.size
    for _ in range(count):
        if pos + SNAPSHOT_ENTRY.size > len(data):
            yield {"error": "the file is cut off"}
            return
        yield dict(zip(_SNAPSHOT_NAMES, SNAPSHOT_ENTRY.unpack_from(data, pos), strict=True))
        pos += SNAPSHOT_ENTRY.size


def _headers(path: Path) -> dict[int, BatchHeader] | None:
    """Return the header of each batch by position, or None if the log does not exist."""
    if not path.is_file():
        return None
    with _mapped(path) as view:
        found = {}
        for position, batch, header in _batches(view):
            found[position] = header
            batch.release()
        return found


def _abort_markers(path: Path) -> dict[int, int] | None:
    """Return the producer id of each abort marker by offset, or None if the log does not exist."""
    if not path.is_file():
        return None
    found = {}
    with _mapped(path) as view:
        for _, batch, header in _batches(view):
            marker = read_marker(bytes(batch)) if header.is_control else None
            if marker is not None and not marker.committed:
                found[header.base_offset] = header.producer_id
            batch.release()
    return found


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """Map the file into memory, so that its size does not matter."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield memoryview(b"")
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = memoryview(mapped)
            try:
                yield view
            finally:
                view.release()
