"""Retention of one log in time slices.

A log may have hundreds of expired segments, for example after its retention time was shortened. The
deletion of a segment renames its files and removes its producer snapshot, on the owner's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from odradek.log.unified_log import UnifiedLog
from odradek.slicing import ELEMENTS_PER_SLICE

DELETED_SEGMENT_ELEMENTS = 50
"""Cost of a deleted segment in elements of a time slice: it is some 0.5 ms, and more on a disk."""
SEGMENTS_A_SLICE = ELEMENTS_PER_SLICE // DELETED_SEGMENT_ELEMENTS
"""Number of segments of one log that are deleted in one time slice."""


def delete_old_segments(
    log: UnifiedLog, now_ms: int, may_delete: Callable[[UnifiedLog], bool], *, wait: bool
) -> Generator[None, None, int]:
    """Apply retention to a log. Runs on the owner's thread.

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
    count = 0
    while may_delete(log):
        deleted = log.delete_old_segments(now_ms, wait=wait, limit=SEGMENTS_A_SLICE)
        count += deleted
        if deleted < SEGMENTS_A_SLICE:
            break
        yield
    return count
