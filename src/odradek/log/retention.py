"""Rules by which old segments are deleted: age of their records, size of the log, log start offset.

Kafka's rules (``UnifiedLog.deleteOldSegments``): the oldest segments are deleted as long as each is
deletable and lies below the high watermark. The active segment may be deleted too, after a new one
was begun. An empty segment at the end stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.log.segments.log_segment import LogSegment
from odradek.log.segments.log_segments import LogSegments


class Rule(NamedTuple):
    """`is_deletable(segment, base offset of the next one)` is asked about the oldest segment first,
    and not again after a no. `reason` is for the log. `keep_active`: the active segment stays.
    """

    reason: str
    is_deletable: Callable[[LogSegment, int], bool]
    keep_active: bool = False


def older_than(retention_ms: int, now_ms: int, *, wait: bool) -> Rule:
    """By the largest timestamp of a segment. Without `wait` NotResident is raised where it would
    have to be read from the disk. A negative `retention_ms` keeps everything.
    """

    def is_too_old(segment: LogSegment, _next_base: int) -> bool:
        return retention_ms >= 0 and now_ms - segment.largest_timestamp(wait=wait) > retention_ms

    return Rule(f"older than {retention_ms} ms", is_too_old)


def excess_over(retention_bytes: int, size_bytes: int) -> Rule:
    """By the size of a log that has `size_bytes` now. A negative `retention_bytes` keeps
    everything.
    """
    excess = size_bytes - retention_bytes if retention_bytes >= 0 else -1

    def is_excess(segment: LogSegment, _next_base: int) -> bool:
        nonlocal excess
        if excess < 0 or excess < segment.size:
            return False
        excess -= segment.size
        return True

    return Rule(f"log larger than {retention_bytes} bytes", is_excess)


def before_log_start(log_start_offset: int) -> Rule:
    """By the log start offset: segments that lie before it."""

    def is_before(_segment: LogSegment, next_base: int) -> bool:
        return next_base <= log_start_offset

    return Rule(f"before log start offset {log_start_offset}", is_before, keep_active=True)


def count_deletable(
    segments: LogSegments, log_end_offset: int, high_watermark: int, rule: Rule
) -> int:
    """How many of the first segments the rule lets go."""
    count = 0
    for at, segment in enumerate(segments):
        is_last = at + 1 == len(segments)
        next_base = log_end_offset if is_last else segments.bases[at + 1]
        if is_last and (segment.size == 0 or rule.keep_active):
            break
        if high_watermark < next_base or not rule.is_deletable(segment, next_base):
            break
        count += 1
    return count
