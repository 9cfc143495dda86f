"""The cut of one log's segments, for `log.truncation`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.log.segments.log_segment import LogSegment
from odradek.log.segments.log_segments import LogSegments


class LogCut(NamedTuple):
    """The truncation of one log.

    Attributes:
        offset: The first offset that is removed.
        base: If set, no batch stays, and the log starts at `offset` in a new segment with
            this base offset, at most `offset`.
        has_readers: Readers may hold regions with batches that are removed.
    """

    offset: int
    base: int | None
    has_readers: bool


def cut_segments(
    segments: LogSegments,
    cut: LogCut,
    make: Callable[[int], LogSegment],
    discard: Callable[[LogSegment], None],
) -> int:
    """Remove the batches of one log from its segments. Return the new end of the log.

    Later segments are removed first, and the last one before the others. A crash then leaves a log
    without a gap.

    Args:
        segments: The segments of the log.
        cut: The batches to be removed.
        make: Returns a new segment with that base offset.
        discard: Renames the files of a removed segment.

    Raises:
        OSError: The call can be repeated.
    """
    if cut.base is not None:
        for segment in reversed(list(segments)):
            discard(segment)
        start = make(cut.base)
        start.create_files()
        segments.restart(start)
        return cut.offset
    for segment in reversed(segments.remove_after(cut.offset)):
        discard(segment)
    active = segments.active
    if not cut.has_readers:
        active.truncate_to(cut.offset)
    elif (copy := active.copy_below(cut.offset)) is not None:
        segments.replace_active(copy)
    return segments.active.next_offset()
