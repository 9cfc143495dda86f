"""Retention in time slices.

A log may have hundreds of expired segments, for example after its retention time was shortened. The
deletion of a segment renames its files and removes its producer snapshot, on the owner's thread.

If all segments have expired, the log rolls a new one first, which creates four files. The creation
of a file may take a millisecond. Each step of the roll, and the deletion, has a time slice of its
own. The clock also ends a slice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable

from odradek.environment.clock import Clock
from odradek.errors import KafkaError
from odradek.log.residency import NotResident
from odradek.log.unified_log import UnifiedLog
from odradek.slicing import ELEMENTS_PER_SLICE, SLICE_MS

DELETED_SEGMENT_ELEMENTS = 50
"""Cost of a deleted segment in elements of a time slice: it is 0.15 ms, and more on a disk."""
SEGMENTS_A_SLICE = ELEMENTS_PER_SLICE // DELETED_SEGMENT_ELEMENTS
"""Number of segments of one log that are deleted in one time slice."""
PRODUCERS_EXPIRED_AN_ELEMENT = 50
"""Number of producers whose age is compared at the cost of one element."""

_logger = logging.getLogger(__name__)


def retain_logs(
    logs: Iterable[UnifiedLog | None],
    now_ms: int,
    producer_expiration_ms: int,
    *,
    is_assigned: Callable[[UnifiedLog], bool],
    may_delete: Callable[[UnifiedLog], bool],
    clock: Clock,
    wait: bool,
) -> Generator[None, None, int]:
    """Apply retention and expire producers; see `LogManager.retain`.

    Args:
        logs: The logs. None counts as one.
        now_ms: The time of the pass.
        producer_expiration_ms: The time after which an idle producer expires.
        is_assigned: Called before the work on a log. False skips the log.
        may_delete: As for `delete_old_segments`.
        clock: Ends a time slice.
        wait: Whether the disk may be read.

    Returns:
        The number of deleted segments.
    """
    count = cost = 0
    ends_ms = clock.monotonic_ms() + SLICE_MS
    for log in logs:
        if cost >= ELEMENTS_PER_SLICE or clock.monotonic_ms() > ends_ms:
            yield
            cost, ends_ms = 0, clock.monotonic_ms() + SLICE_MS
        cost += 1
        if log is None or not is_assigned(log):
            continue
        active = log.segments.active
        cost += len(log.producers.producers) // PRODUCERS_EXPIRED_AN_ELEMENT
        log.producers.expire(now_ms, producer_expiration_ms)
        try:
            deleted = yield from delete_old_segments(log, now_ms, may_delete, wait=wait)
        except NotResident:
            _logger.debug("retention of %s is postponed", log.topic_partition)
        except KafkaError as error:
            _logger.warning(
                "retention of %s failed: %s. The next check tries again",
                log.topic_partition,
                error,
            )
        else:
            count += deleted
            cost += deleted * DELETED_SEGMENT_ELEMENTS
        if log.segments.active is not active:  # rolled
            cost = ELEMENTS_PER_SLICE
    return count


def delete_old_segments(
    log: UnifiedLog, now_ms: int, may_delete: Callable[[UnifiedLog], bool], *, wait: bool
) -> Generator[None, None, int]:
    """Apply retention to a log. Runs on the owner's thread.

    A slice ends after `SEGMENTS_A_SLICE` deleted segments, and after each step of a roll. The log
    rolls at most once, because producers may append old records between two slices.

    Args:
        log: The log.
        now_ms: The time of the pass.
        may_delete: Called before each time slice. False ends the work, for example because the log
            was closed between two slices.
        wait: Whether the disk may be read.

    Returns:
        The number of deleted segments.

    Raises:
        NotResident: Without `wait`, the disk would have to be read.
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    count, limit, first = 0, SEGMENTS_A_SLICE, log.segments.active
    while may_delete(log):
        if log.segments.active is not first:  # it has rolled
            limit = min(SEGMENTS_A_SLICE, len(log.segments) - 1)
        deletion = log.delete_old_segments(now_ms, wait=wait, limit=limit)
        count += deletion.deleted
        if deletion.deleted < SEGMENTS_A_SLICE and not deletion.is_rolling:
            break
        yield
    return count
