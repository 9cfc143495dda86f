"""Which segments go, and when: by the age of their records, by the log's size, by its start offset.

Kafka's rules (``UnifiedLog.deleteOldSegments``): the oldest segments go as long as each is
deletable and all of it lies below the high watermark; the active one too, after a new one was
begun, but never an empty one at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.log.segments.log_segment import LogSegment
from odradek.log.state.producer_files import remove_producer_files

if TYPE_CHECKING:
    from odradek.log.unified_log import UnifiedLog

_logger = logging.getLogger(__name__)


def delete_old_segments(log: UnifiedLog, now_ms: int) -> int:
    """Applies every rule of the log's config; how many segments went. OSError takes the dir
    offline.
    """
    try:
        count = 0
        if log.config.cleanup_delete:
            count += _delete_by_time(log, now_ms)
            count += _delete_by_size(log, now_ms)
        return count + _delete_before_start(log, now_ms)
    except OSError as error:
        raise log.log_dir.fail(error, f"retention of {log.topic_partition}") from error


def _delete_by_time(log: UnifiedLog, now_ms: int) -> int:
    retention_ms = log.config.retention_ms
    if retention_ms < 0:
        return 0

    def is_too_old(segment: LogSegment, _next_base: int) -> bool:
        return now_ms - largest_timestamp(log, segment) > retention_ms

    return _delete_while(log, is_too_old, f"older than {retention_ms} ms", now_ms)


def _delete_by_size(log: UnifiedLog, now_ms: int) -> int:
    retention_bytes = log.config.retention_bytes
    excess = log.size_bytes - retention_bytes
    if retention_bytes < 0 or excess < 0:
        return 0

    def is_excess(segment: LogSegment, _next_base: int) -> bool:
        nonlocal excess
        if excess < segment.size:
            return False
        excess -= segment.size
        return True

    return _delete_while(log, is_excess, f"log larger than {retention_bytes} bytes", now_ms)


def _delete_before_start(log: UnifiedLog, now_ms: int) -> int:
    def is_before(_segment: LogSegment, next_base: int) -> bool:
        return next_base <= log.log_start_offset

    active = log.active
    if active.size == 0 and len(log.segments) == 1:
        return 0
    return _delete_while(
        log, is_before, f"before log start offset {log.log_start_offset}", now_ms, keep_active=True
    )


def largest_timestamp(log: UnifiedLog, segment: LogSegment) -> int:
    """The largest record timestamp, or the time of the last change where no record has one."""
    segment.load_timestamps()
    if segment.max_timestamp >= 0:
        return segment.max_timestamp
    return log.log_dir.files.modified_ms(segment.file.path)


def _delete_while(
    log: UnifiedLog,
    is_deletable: Callable[[LogSegment, int], bool],
    reason: str,
    now_ms: int,
    *,
    keep_active: bool = False,
) -> int:
    count = 0
    for at, segment in enumerate(log.segments):
        is_last = at + 1 == len(log.segments)
        next_base = log.log_end_offset if is_last else log.segments[at + 1].base_offset
        if is_last and (segment.size == 0 or keep_active):
            break
        if log.high_watermark < next_base or not is_deletable(segment, next_base):
            break
        count += 1
    if count:
        delete_first_segments(log, count, reason, now_ms)
    return count


def delete_first_segments(log: UnifiedLog, count: int, reason: str, now_ms: int) -> None:
    """Takes the first `count` segments away, beginning a new one when that is all of them."""
    if count == len(log.segments):
        log.roll(now_ms)
    doomed = log.take_first_segments(count)
    files = log.log_dir.files
    for segment in doomed:
        _logger.info("deleting %s: %s", segment.file.path, reason)
        log.discard(segment)
        remove_producer_files(files, log.directory, segment.base_offset)
