"""Reads of a log: regions of segment files between two offsets."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.environment.files import OpenFile
from odradek.log.segments.log_segment import LogSegment
from odradek.log.segments.log_segments import LogSegments
from odradek.records.region import FileRegion

COLD_READ_BYTES = 1_048_576
"""Number of bytes of a region that a read from the disk brings into the page cache."""


@dataclass(slots=True)
class LogReadInfo:
    """The outcome of a read.

    Attributes:
        region: The records, or None when there is nothing to send.
        first_batch_cut: The region ends inside its first batch (only without min_one_message).
        segment: The segment with the region.
        aborted: (producer id, first offset) of the aborted transactions that overlap the region,
            or None unless they were requested.
        copied: A copy of uncommitted records, without a region: a leader that is deposed may
            truncate them while the response is sent (`follower_read`).
        truncations: Number of truncations of the log before the read began, for
            `UnifiedLog.confirm`.
    """

    region: FileRegion | None
    first_batch_cut: bool = False
    segment: LogSegment | None = None
    aborted: list[tuple[int, int]] | None = None
    truncations: int = 0
    copied: bytes | bytearray = b""


NOTHING_READ = LogReadInfo(None)


def read_segments(
    segments: list[LogSegment], offset: int, max_bytes: int, max_offset: int, min_one_message: bool
) -> LogReadInfo:
    """Read as `UnifiedLog.read` does. The owner may append, roll and delete in the meantime.

    Afterwards the first `COLD_READ_BYTES` of the region are in the page cache.
    """
    for at, segment in enumerate(segments):
        end = segment.size  # before the lookups: a batch appended later is not below the end
        found = segment.locate(offset) if offset < max_offset else None
        if found is None:
            continue
        position, first_size = found
        if at + 1 == len(segments) or max_offset < segments[at + 1].base_offset:
            bound = segment.locate(max_offset)
            if bound is not None:
                end = min(end, bound[0])
        file = segment.file.open()
        read = cut_region(segment, file, position, end, first_size, max_bytes, min_one_message)
        if read.region is not None:
            read.region.touch(0, min(read.region.length, COLD_READ_BYTES))
        return read
    return LogReadInfo(None)


def cut_region(
    segment: LogSegment,
    file: OpenFile,
    position: int,
    end: int,
    first_size: int,
    max_bytes: int,
    min_one_message: bool,
) -> LogReadInfo:
    """Return the region from `position` to `end`, of at most `max_bytes`; see `UnifiedLog.read`."""
    length = end - position
    if length > max_bytes:
        limit = first_size if min_one_message and first_size > max_bytes else max_bytes
        length = min(length, limit)
    if length <= 0:
        return LogReadInfo(None)
    region = FileRegion(file, position, length, first_size > 0)
    return LogReadInfo(region, length < first_size, segment)


def aborted_in(
    segments: LogSegments,
    first_offset: int,
    read: LogReadInfo,
    log_end_offset: int,
    *,
    wait: bool = True,
) -> list[tuple[int, int]]:
    """Return (producer id, first offset) of the aborted transactions that overlap a read.

    The result may include transactions slightly after the region, because the end of the region is
    looked up in the sparse index.

    Raises:
        NotResident: Without `wait`, the disk would have to be read.
    """
    segment, region = read.segment, read.region
    if region is None or segment is None or not segments.have_aborted(first_offset):
        return []
    upper_offset = segment.offset_bound(region.position + region.length, wait=wait)
    return segments.aborted_transactions(first_offset, upper_offset or log_end_offset, wait=wait)
