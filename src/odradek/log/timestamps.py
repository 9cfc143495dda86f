"""Offsets for timestamps, exact to the record.

Both searches are generators of work (`odradek.offloading`). Threads read the files and unpack the
batches, and records are compared in slices on the event loop. A batch whose body does not match its
header is represented by its header: the base offset and the largest timestamp. The same applies to
a batch with too many records, so that no producer can make a search fail. A search opens at most
two batches: the batch that holds the log start, and the first batch whose header has a late enough
timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from odradek.log.segments.log_segment import LogSegment
from odradek.log.unified_log import UnifiedLog
from odradek.offloading import Work, offloaded
from odradek.records.batch import HEADER_BYTES, BatchHeader, Compression
from odradek.records.compression import (
    Body,
    CorruptCompression,
    released_after,
    unpack,
)
from odradek.records.record import CorruptRecord
from odradek.records.scan import find_timestamp, largest_timestamp

UNPACKED_BYTES_MAX = 64 * 1024 * 1024
"""Maximum size in bytes to which a lookup unpacks a batch."""

RECORDS_MAX = 1_000_000
"""Maximum number of records of a batch that a lookup reads."""


class TimestampOffset(NamedTuple):
    """A record's timestamp in milliseconds, its offset, and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


Opened = tuple[BatchHeader, Body | None]
"""A batch and its records. The records are None when the batch is damaged or incomplete."""

Search = Callable[[Sequence[LogSegment]], Work[TimestampOffset | None]]


def offset_for_timestamp(log: UnifiedLog, timestamp: int) -> Work[TimestampOffset | None]:
    """Find the first record at or above the log start whose timestamp is at least `timestamp`."""

    def search(segments: Sequence[LogSegment]) -> Work[TimestampOffset | None]:
        return _first_record(log, _candidates(log, segments, timestamp), timestamp)

    return (yield from _in_existing_segments(log, search))


def offset_of_max_timestamp(log: UnifiedLog) -> Work[TimestampOffset | None]:
    """Find the first record with the largest timestamp at or above the log start (KIP-734).

    The result is None if there are no records.
    """
    return (yield from _in_existing_segments(log, partial(_max_timestamp, log)))


def _in_existing_segments(log: UnifiedLog, search: Search) -> Work[TimestampOffset | None]:
    """Search the segments. Start again if some of them were deleted or replaced in the meantime.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR, because a truncation is removing segments.
    """
    while True:
        segments = list(log.segments)
        try:
            return (yield from search(segments))
        except FileNotFoundError as error:
            if log.closed or not any(segment.deleted for segment in segments):
                raise
            if log.is_truncating:
                what = f"{log.topic_partition} is being truncated"
                raise log.log_dir.error(what) from error


def _max_timestamp(log: UnifiedLog, segments: Sequence[LogSegment]) -> Work[TimestampOffset | None]:
    values, batch = yield from offloaded(
        partial(_largest_by_header, segments, log.log_start_offset)
    )
    if batch is not None:
        at, opened = batch
        largest = yield from _largest_from(opened, log.log_start_offset)
        values[at] = max((each for each in (values[at], largest) if each is not None), default=None)
    known = [(value, at) for at, value in enumerate(values) if value is not None]
    if not known:
        return None
    target, at = max(known, key=lambda each: (each[0], -each[1]))
    candidates = _candidates(log, segments[at : at + 1], target)
    return (yield from _first_record(log, candidates, target))


def _candidates(
    log: UnifiedLog, segments: Sequence[LogSegment], timestamp: int
) -> Iterator[Opened]:
    """Read and unpack the batches whose header has `timestamp` or a later timestamp."""
    for segment in segments:
        segment.load_timestamps()
        if segment.max_timestamp < timestamp:
            continue
        for position, header in _headers_from(segment, timestamp, log.log_start_offset):
            if header.max_timestamp < timestamp or header.last_offset < log.log_start_offset:
                continue
            if header.record_count:
                yield _open(segment, position, header)


def _largest_by_header(
    segments: Sequence[LogSegment], start_offset: int
) -> tuple[list[int | None], tuple[int, Opened] | None]:
    """Read the largest timestamp of each segment from `start_offset` on, from the headers only.

    Returns:
        The timestamps, with None for a segment without such batches. Also the batch that holds
        `start_offset`, unless it begins there, with the index of its segment.
    """
    values: list[int | None] = []
    partly: tuple[int, Opened] | None = None
    for at, segment in enumerate(segments):
        largest: int | None = None
        if segment.size and segment.base_offset >= start_offset:
            segment.load_timestamps()
            largest = segment.max_timestamp
        elif segment.size and (found := segment.locate(start_offset)) is not None:
            for position, header in segment.headers(found[0]):
                if header.base_offset < start_offset:
                    partly = at, _open(segment, position, header)
                elif largest is None or header.max_timestamp > largest:
                    largest = header.max_timestamp
        values.append(largest)
    return values, partly


def _headers_from(
    segment: LogSegment, timestamp: int, start_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches from the first position that may have `timestamp` or the start offset."""
    index, time_index = segment.indexes()
    relative = max(time_index.lookup(timestamp), start_offset - segment.base_offset)
    return segment.headers(index.lookup(relative))


def _open(segment: LogSegment, position: int, header: BatchHeader) -> Opened:
    """Read and unpack one batch in one thread.

    Each change of threads waits for the interpreter lock.
    """
    batch = segment.read_batch(position, header.size_bytes)
    if len(batch) < header.size_bytes or header.compression > Compression.ZSTD:
        return header, None
    packed = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    try:
        return header, unpack(Compression(header.compression), packed, UNPACKED_BYTES_MAX)
    except CorruptCompression:
        return header, None


def _first_record(
    log: UnifiedLog, candidates: Iterator[Opened], timestamp: int
) -> Work[TimestampOffset | None]:
    while True:
        opened = yield from offloaded(lambda: next(candidates, None))
        if opened is None:
            return None
        found = yield from _first_of_batch(opened, timestamp, log.log_start_offset)
        if found is not None:
            return found


def _first_of_batch(
    opened: Opened, timestamp: int, start_offset: int
) -> Work[TimestampOffset | None]:
    """Return the record; None if all matches are below `start_offset` or were compacted away."""
    header, body = opened
    found: tuple[int, int] | None = None
    if body is not None:
        count = min(header.record_count, RECORDS_MAX)
        search = find_timestamp(body, header, timestamp, start_offset, count)
        try:
            found = yield from released_after(body, search)
        except CorruptRecord:
            found = None
        else:
            if found is None and header.base_offset < start_offset:
                return None
    epoch = header.partition_leader_epoch
    if found is not None and header.base_offset <= found[1] <= header.last_offset:
        return TimestampOffset(*found, epoch)
    return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), epoch)


def _largest_from(opened: Opened, start_offset: int) -> Work[int | None]:
    """Return the largest timestamp of a batch's records from `start_offset` on."""
    header, body = opened
    if body is None:
        return header.max_timestamp
    try:
        search = largest_timestamp(body, header, start_offset)
        return (yield from released_after(body, search))
    except CorruptRecord:
        return header.max_timestamp
