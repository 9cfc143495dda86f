"""The cut of one log's segments, for `log.truncation`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

from odradek.environment.files import Files, unlink_if_exists
from odradek.log.segments.log_segment import EXPIRED_SUFFIX, LOG_SUFFIX, LogSegment
from odradek.log.segments.log_segments import LogSegments

CLEANED_SUFFIX = ".cleaned"
"""Suffix of a segment that the cleaner writes (`segment_swap`)."""
SWAP_SUFFIX = ".swap"
"""Suffix of a complete segment that is about to replace others (`segment_swap`)."""


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
    without a gap. A segment stays in the list until all of its files have other names. An error
    leaves the other segments in the list, and the repeated call renames their files.

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
    while (last := segments[-1]).base_offset > cut.offset:
        discard(last)
        segments.remove_last()
    segments.activate_last()
    active = segments.active
    if not cut.has_readers:
        active.truncate_to(cut.offset)
    elif (copy := active.copy_below(cut.offset)) is not None:
        segments.replace_active(copy)
    return segments.active.next_offset()


def remove_unlisted_segments(
    files: Files, directory: str, bases: Container[int], offset: int
) -> None:
    """Remove each ``.log`` at or above `offset` that belongs to no segment of the log.

    They are the segments that retention has deleted, whose offsets are used again, and the empty
    file of a failed roll that could not be removed. The next clean start would append to that file,
    and the log would have a gap before it.
    """
    for name in files.listdir(directory):
        stem, _, suffix = name.partition(".")
        if not stem.isdigit() or int(stem) < offset:
            continue
        is_unlisted = suffix == LOG_SUFFIX[1:] and int(stem) not in bases
        if is_unlisted or name.endswith(EXPIRED_SUFFIX):
            unlink_if_exists(files, f"{directory}/{name}")


def undo_swaps(files: Files, directory: str) -> None:
    """Undo the renames of a compaction's swap that is not complete, before a truncation.

    Later records may have the offsets of the new segment. After a crash,
    `segment_swap.recover_swaps` would remove their segments. May run on any thread.

    Raises:
        OSError: The call can be repeated.
    """
    swaps = [name for name in files.listdir(directory) if name.endswith(SWAP_SUFFIX)]
    swaps.sort(key=lambda name: not name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    undo_renames(files, [f"{directory}/{name}" for name in swaps])


def undo_renames(files: Files, swaps: Sequence[str]) -> None:
    """Remove the new files of a swap, of which the ``.log`` is the first.

    They get their former names first. An index with the suffix ``.swap`` whose ``.log`` was removed
    would replace the index of the old segment after a crash.
    """
    cleaned = [path.removesuffix(SWAP_SUFFIX) + CLEANED_SUFFIX for path in swaps]
    for path, former in zip(swaps, cleaned, strict=True):
        with contextlib.suppress(FileNotFoundError):
            files.replace(path, former)
    for former in reversed(cleaned):
        unlink_if_exists(files, former)
