"""Rules for the deletion of old segments: age of the records, size of the log, log start offset.

The rules are Kafka's (``UnifiedLog.deleteOldSegments``). The oldest segments are deleted as long as
each is deletable and is below the high watermark. The active segment may be deleted as well, after
a new one was created. An empty segment at the end is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from odradek.config.log_config import LogConfig
from odradek.log.segments.log_segment import LogSegment
from odradek.log.segments.log_segments import LogSegments


class Rule(NamedTuple):
    """A retention rule.

    Attributes:
        reason: The reason for the log message.
        is_deletable: Called with a segment and the base offset of the next one, for the oldest
            segment first. It is not called again after it has returned False.
        keep_active: Whether the active segment is kept.
    """

    reason: str
    is_deletable: Callable[[LogSegment, int], bool]
    keep_active: bool = False


class Deletion(NamedTuple):
    """The outcome of `UnifiedLog.delete_old_segments`.

    Attributes:
        deleted: The number of deleted segments.
        is_rolling: Whether the call ended with a step of a roll. More calls delete the other
            segments.
    """

    deleted: int
    is_rolling: bool


def rules(
    config: LogConfig,
    now_ms: int,
    size_bytes: Callable[[], int],
    log_start_offset: Callable[[], int],
    *,
    wait: bool,
) -> Iterator[Rule]:
    """Yield the rules for a log. Each takes the size and the log start as they are by then."""
    if config.cleanup_delete:
        yield older_than(config.retention_ms, now_ms, wait=wait)
        yield excess_over(config.retention_bytes, size_bytes())
    yield before_log_start(log_start_offset())


def load(config: LogConfig, segments: Sequence[LogSegment], now_ms: int) -> None:
    """Read the data that the rules need of these segments, the first ones of a log."""
    rule = older_than(config.retention_ms, now_ms, wait=True)
    for segment in segments if config.cleanup_delete else ():
        # An empty segment is never deleted, and a log without records has no files.
        if not segment.size or not rule.is_deletable(segment, 0):
            return


def older_than(retention_ms: int, now_ms: int, *, wait: bool) -> Rule:
    """Return the rule for the largest timestamp of a segment.

    A negative `retention_ms` keeps all segments. Without `wait` the rule raises NotResident if the
    timestamp would have to be read from the disk.
    """

    def is_too_old(segment: LogSegment, _next_base: int) -> bool:
        return retention_ms >= 0 and now_ms - segment.largest_timestamp(wait=wait) > retention_ms

    return Rule(f"older than {retention_ms} ms", is_too_old)


def excess_over(retention_bytes: int, size_bytes: int) -> Rule:
    """Return the rule for the size of a log that has `size_bytes` now.

    A negative `retention_bytes` keeps all segments.
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
    """Return the rule for the log start offset. It deletes the segments below the offset."""

    def is_before(_segment: LogSegment, next_base: int) -> bool:
        return next_base <= log_start_offset

    return Rule(f"before log start offset {log_start_offset}", is_before, keep_active=True)


def count_deletable(
    segments: LogSegments, log_end_offset: int, high_watermark: int, rule: Rule, limit: int
) -> int:
    """Return how many of the first segments the rule deletes, at most `limit`."""
    count = 0
    for at, segment in enumerate(segments):
        if count >= limit:
            break
        is_last = at + 1 == len(segments)
        next_base = log_end_offset if is_last else segments.bases[at + 1]
        if is_last and (segment.size == 0 or rule.keep_active):
            break
        if high_watermark < next_base or not rule.is_deletable(segment, next_base):
            break
        count += 1
    return count
