"""What an append of a transactional batch, or of a marker, does to a log beside writing bytes.

The index of aborted transactions gets its entry just before the marker is written: a full disk then
refuses the marker, and never leaves one without its entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.log.directories.log_dir import NO_DESCRIPTOR_ERRNOS

if TYPE_CHECKING:
    from odradek.log.segments.log_segment import LogSegment
    from odradek.log.unified_log import LogReadInfo, UnifiedLog
    from odradek.records.control import Marker


def before_append(log: UnifiedLog, segment: LogSegment, producer_id: int, marker: Marker) -> None:
    """Writes the index entry of a marker that aborts something; OSError as from the log."""
    # What is committed is forgotten here too: the partition may have no reader who does that.
    log.producers.first_unstable_offset(log.high_watermark)
    if marker.committed:
        return
    aborted = log.producers.aborted_by(producer_id, log.log_end_offset)
    if aborted is not None:
        if segment.txn_index is None:
            log.file_created()
        segment.append_aborted(aborted)


def append_failed(log: UnifiedLog) -> None:
    """Takes back what `before_append` wrote; OSError when that is not possible. Without a
    descriptor the bytes stay, and the next entry is written over them.
    """
    if log.active.txn_index is None:
        return
    try:
        log.active.txn_index.truncate(log.log_end_offset)
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR_ERRNOS:
            raise


def aborted_in(
    log: UnifiedLog, first_offset: int, read: LogReadInfo, *, wait: bool = True
) -> list[tuple[int, int]]:
    """Those that overlap what a read gave, or little more: the region's end is looked up in the
    sparse index. Without `wait` NotResident is raised where the disk would have to be read.
    """
    segment, region = read.segment, read.region
    if region is None or segment is None or not _may_have_aborted(log, first_offset):
        return []
    upper_offset = segment.offset_bound(region.position + region.length, wait=wait)
    return aborted_transactions(log, first_offset, upper_offset or log.log_end_offset, wait=wait)


def _may_have_aborted(log: UnifiedLog, first_offset: int) -> bool:
    return any(segment.txn_index is not None for segment in log.segments_from(first_offset))


def aborted_transactions(
    log: UnifiedLog, first_offset: int, upper_offset: int, *, wait: bool = True
) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions that overlap [first, upper)."""
    found: list[tuple[int, int]] = []
    for segment in log.segments_from(first_offset):
        txn_index = segment.txn_index
        if txn_index is None:
            continue
        aborted, complete = txn_index.overlapping(first_offset, upper_offset, wait=wait)
        found += [(each.producer_id, each.first_offset) for each in aborted]
        if complete:
            break
    return found
