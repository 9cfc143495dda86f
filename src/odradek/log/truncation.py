"""Cutting the end of a log (KIP-101): batches, indexes, epochs and producers together.

All of it is on the disk when it returns: a crash must not bring back what was cut.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from odradek.log.segments.log_segment import LogSegment
from odradek.log.state import producer_files

if TYPE_CHECKING:
    from odradek.log.unified_log import UnifiedLog


def truncate_to(log: UnifiedLog, offset: int) -> None:
    """Cuts every batch that holds `offset` or a later one; OSError may arise anywhere.

    An offset in mid-batch cuts that whole batch: the log ends where its data ends. An offset before
    the first segment leaves an empty log that begins there.
    """
    files = log.log_dir.files
    with log.flush_lock:
        removed = _cut_segments(log, offset)
        log.recovery_point = min(log.recovery_point, log.log_end_offset)
        log.active.flush(indexes=False)
    for old in removed:
        log.discard(old)
    files.fsync_dir(log.directory)
    log.log_start_offset = min(log.log_start_offset, log.log_end_offset)
    log.high_watermark = min(log.high_watermark, log.log_end_offset)
    log.epochs.truncate_from_end(log.log_end_offset)
    log.write_epochs(sync=True)
    # Before anything is appended behind the cut: a recovery point past it would claim it is synced.
    log.log_dir.write_checkpoints()
    found = producer_files.producer_files_by_offset(files.listdir(log.directory))
    producer_files.delete_producer_files(files, log.directory, found, above=log.log_end_offset)
    verifications = log.producers.verifications
    log.producers = producer_files.load_producers(
        files, log.directory, found, log.segments, log.log_end_offset
    )
    log.producers.verifications = verifications


def _cut_segments(log: UnifiedLog, offset: int) -> list[LogSegment]:
    """Leaves a last segment that ends before `offset`; the segments that are to be removed."""
    keep = bisect_right(log.bases, offset)
    removed = log.segments[keep:]
    if keep == 0:
        start = log.make_segment(offset, log.active.created_ms)
        log.segments, log.bases = [start], [offset]
    else:
        del log.segments[keep:], log.bases[keep:]
        log.segments[-1].active = True
        log.segments[-1].truncate_to(offset)
    log.activate(log.segments[-1])
    log.log_end_offset = log.active.next_offset()
    return removed
