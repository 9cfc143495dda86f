"""Offsets for timestamps, exact to the record. Opens batches: run it off the event loop.

A batch whose body is not what its header says is answered by its header: the base offset and the
largest timestamp. So is one whose body would take too long to go through. Nothing here fails on
what a producer wrote, and a lookup opens two batches at most: the one that holds the log start,
and the first whose header promises what is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from odradek.log.unified_log import UnifiedLog
from odradek.log.segments.log_segment import LogSegment
from odradek.records.batch import BatchHeader
from odradek.records.record import CorruptRecord, iter_records

UNPACKED_BYTES_MAX = 64 * 1024 * 1024
"""The most that a batch is unpacked to for a lookup."""

RECORDS_MAX = 1_000_000
"""How many records of a batch a lookup goes through."""


class TimestampOffset(NamedTuple):
    """A record's timestamp in milliseconds, its offset, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: UnifiedLog, timestamp: int) -> TimestampOffset | None:
    """The first record at or after the log start whose timestamp is `timestamp` or larger."""
    for segment in list(log.segments):
        segment.load_timestamps()
        if segment.max_timestamp < timestamp:
            continue
        for position, header in _headers_from(segment, timestamp, log.log_start_offset):
            if header.max_timestamp < timestamp or header.last_offset < log.log_start_offset:
                continue
            found = _first_record(segment, position, header, timestamp, log.log_start_offset)
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(log: UnifiedLog) -> TimestampOffset | None:
    """The first record with the largest timestamp (KIP-734) behind the log start; None without
    any.
    """
    best: tuple[int, LogSegment] | None = None
    for segment in list(log.segments):
        largest = _largest_visible(segment, log.log_start_offset)
        if largest is not None and (best is None or largest > best[0]):
            best = (largest, segment)
    if best is None:
        return None
    target, segment = best
    for position, header in _headers_from(segment, target, log.log_start_offset):
        if header.max_timestamp >= target and header.last_offset >= log.log_start_offset:
            found = _first_record(segment, position, header, target, log.log_start_offset)
            if found is not None:
                return found
    return None


def _largest_visible(segment: LogSegment, start_offset: int) -> int | None:
    """The largest timestamp in the segment from `start_offset` on; None without such records."""
    if segment.size and segment.base_offset >= start_offset:
        segment.load_timestamps()
        return segment.max_timestamp
    found = segment.locate(start_offset) if segment.size else None
    if found is None:
        return None
    largest: list[int] = []
    for position, header in segment.headers(found[0]):
        if header.base_offset >= start_offset:
            largest.append(header.max_timestamp)
        else:
            largest += _timestamps_from(segment, position, header, start_offset)
    return max(largest, default=None)


def _timestamps_from(
    segment: LogSegment, position: int, header: BatchHeader, start_offset: int
) -> list[int]:
    """The timestamps of a batch's records from `start_offset` on."""
    try:
        records = list(iter_records(segment.read_batch(position, header.size_bytes)))
    except CorruptRecord:
        return [header.max_timestamp]
    return [record.timestamp for record in records if record.offset >= start_offset]


def _headers_from(
    segment: LogSegment, timestamp: int, start_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """The batches from where `timestamp` or the start offset may first be found in the segment."""
    index, time_index = segment.indexes()
    relative = max(time_index.lookup(timestamp), start_offset - segment.base_offset)
    return segment.headers(index.lookup(relative))


def _first_record(
    segment: LogSegment, position: int, header: BatchHeader, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    """None when all that is old enough lies before `start_offset`, or was compacted away."""
    if not header.record_count:
        return None
    epoch = header.partition_leader_epoch
    batch = segment.read_batch(position, header.size_bytes)
    try:
        for record in islice(iter_records(batch, UNPACKED_BYTES_MAX), RECORDS_MAX):
            if record.timestamp < timestamp or record.offset < start_offset:
                continue
            if header.base_offset <= record.offset <= header.last_offset:
                return TimestampOffset(record.timestamp, record.offset, epoch)
            break
    except CorruptRecord:
        pass
    else:
        if header.base_offset < start_offset:
            return None
    return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), epoch)
