"""The selection of the log to clean, and of its cleanable part (``LogCleanerManager``).

Runs on the owner's thread. A segment before the active one is cleanable on three conditions. Its
transactions have ended (it is below the last stable offset). It is older than
`min.compaction.lag.ms`. It is below the recovery point on the disk, because recovery after a crash
reads the rest batch by batch and takes a gap for a loss. Recovery must never see the gaps that
cleaning leaves.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from odradek.log.cleaner.worker_protocol import CleaningJob
from odradek.log.unified_log import UnifiedLog

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LogToClean:
    """A log with a cleanable part below `upper_bound`, which is the base offset of a segment.

    Attributes:
        overdue: A part has been dirty for longer than `max.compaction.lag.ms`.
        truncations: `UnifiedLog.truncations` at the selection. After a later truncation the other
            attributes are out of date.
    """

    log: UnifiedLog
    first_dirty_offset: int
    upper_bound: int
    clean_bytes: int
    cleanable_bytes: int
    overdue: bool
    truncations: int

    @property
    def is_current(self) -> bool:
        """Whether the log has not been truncated since the selection."""
        return self.truncations == self.log.truncations and not self.log.is_truncating

    @property
    def cleanable_ratio(self) -> float:
        return self.cleanable_bytes / max(self.clean_bytes + self.cleanable_bytes, 1)

    @property
    def is_due(self) -> bool:
        if self.overdue and self.cleanable_bytes:
            return True
        return self.cleanable_ratio > self.log.config.min_cleanable_dirty_ratio


def first_dirty_offset(log: UnifiedLog, checkpoint: int | None) -> int:
    """Return the start of the part that was never cleaned: the log's start if it is unknown."""
    start = log.log_start_offset
    if checkpoint is None:
        return start
    if checkpoint > log.log_end_offset:
        _logger.warning(
            "%s was clean up to %d, but ends at %d. The cleaner compacts all of it again",
            log.topic_partition,
            checkpoint,
            log.log_end_offset,
        )
        return start
    return max(checkpoint, start)


def examine(
    log: UnifiedLog,
    checkpoint: int | None,
    flushed_offset: int,
    now_ms: int,
    *,
    wait: bool = True,
) -> LogToClean | None:
    """Return the cleanable part of this log, or None if it has only its active segment.

    Raises:
        NotResident: Without `wait`, the disk would have to be read: see `load_timestamps`.
    """
    if len(log.segments) < 2:
        return None
    dirty = first_dirty_offset(log, checkpoint)
    end = min(log.last_stable_offset, log.segments.active.base_offset, flushed_offset)
    end = min(end, _first_recent_offset(log, dirty, now_ms, wait=wait))
    # Only whole segments are cleaned, so the segment with the first uncleanable offset is not.
    upper_bound = log.segments.bases[log.segments.index_of(max(end, dirty))]
    below = log.segments.below(upper_bound)
    # A segment counts for both parts if the dirty part begins in the middle of it.
    clean = sum(segment.size for segment in below if segment.base_offset < dirty)
    at = log.segments.index_of(dirty)
    cleanable = sum(segment.size for segment in below[at:])
    if upper_bound <= dirty:
        cleanable = 0
    overdue = _is_overdue(log, dirty, now_ms, wait=wait)
    return LogToClean(log, dirty, upper_bound, clean, cleanable, overdue, log.truncations)


def _first_recent_offset(log: UnifiedLog, dirty: int, now_ms: int, *, wait: bool) -> int:
    """Return the base of the first segment with a record younger than `min.compaction.lag.ms`."""
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments.from_offset(dirty)[:-1]:
            if segment.largest_timestamp(wait=wait) > now_ms - lag_ms:
                return segment.base_offset
    return log.segments.active.base_offset


def _is_overdue(log: UnifiedLog, dirty: int, now_ms: int, *, wait: bool) -> bool:
    """Return whether a dirty segment began longer than `max.compaction.lag.ms` ago."""
    oldest_ms = now_ms - log.config.max_compaction_lag_ms
    if oldest_ms <= 0:
        return False
    for segment in log.segments.from_offset(dirty)[:-1]:
        segment.load_first_timestamp(wait=wait)
        if segment.size and 0 < segment.first_timestamp < oldest_ms:
            return True
    return False


def load_timestamps(log: UnifiedLog, checkpoint: int | None) -> None:
    """Read the data that `examine` needs without `wait`. May run on any thread.

    The function returns early if retention or a truncation removes a segment in the meantime.

    Raises:
        OSError: A segment cannot be read.
    """
    segments = log.segments.from_offset(first_dirty_offset(log, checkpoint))[:-1]
    try:
        for segment in segments:
            segment.largest_timestamp()
            segment.load_first_timestamp()
    except FileNotFoundError:
        if not any(segment.deleted for segment in segments):
            raise


def filthiest(candidates: list[LogToClean]) -> LogToClean | None:
    """Return the log with the largest dirty share among the logs that are due."""
    due = [candidate for candidate in candidates if candidate.is_due]
    return max(due, key=lambda it: it.cleanable_ratio, default=None)


@dataclass(slots=True)
class Budget:
    """The resources that one worker may use. `bytes_per_second` None means no limit."""

    dedupe_buffer_bytes: int
    load_factor: float = 0.9
    io_buffer_bytes: int = 1 << 18
    bytes_per_second: float | None = None


def job_for(chosen: LogToClean, budget: Budget, now_ms: int) -> CleaningJob:
    """Return the job for a worker."""
    log, config = chosen.log, chosen.log.config
    return CleaningJob(
        name=str(log.topic_partition),
        directory=log.directory,
        segments=[
            (segment.base_offset, segment.size)
            for segment in log.segments
            if segment.base_offset < chosen.upper_bound
        ],
        first_dirty_offset=chosen.first_dirty_offset,
        upper_bound=chosen.upper_bound,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        dedupe_buffer_bytes=budget.dedupe_buffer_bytes,
        load_factor=budget.load_factor,
        io_buffer_bytes=budget.io_buffer_bytes,
        bytes_per_second=budget.bytes_per_second,
        last_records=last_records(log),
    )


def last_records(log: UnifiedLog) -> list[tuple[int, int, int]]:
    """Return (producer id, offset of its last data or -1, epoch) of the log's producers."""
    return [
        (producer_id, entry.batches[-1][2] if entry.batches else -1, entry.epoch)
        for producer_id, entry in log.producers.producers.items()
    ]
