"""The swap of a cleaned segment for the old ones: atomic for readers, and safe in a crash.

The files are renamed as in Kafka (``LocalLog.replaceSegments``, ``LogLoader``):

1. ``.cleaned`` -> ``.swap`` (`begin_swap`), and the directory is synced (`prepare_swap`, which may
   block). From here on the new segment is valid. A crash before this step leaves a ``.cleaned``
   file, and the old segments stay valid. If files with both suffixes exist for an offset, the crash
   happened during the renaming.
2. The old files get ``.deleted``, and the new ones lose ``.swap`` (`finish_swap`). After a crash in
   between, `recover_swaps` completes the swap when the log is opened. It removes old segments that
   begin within the offsets of the new one, and renames the new one. On a file system that writes
   names in another order, an old segment may exist again beside the new one: see `LogLoader`.

A truncation between the steps undoes step 1 (`undo_swaps`), because the new segment may have
records that the truncation removes. The cleaner then does not do step 2.

Readers of the old segments continue: the segments keep their files open, and their indexes in
memory, as long as they are referenced.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.environment.files import READ, Files, OpenFile, unlink_if_exists
from odradek.log.segments.log_cut import CLEANED_SUFFIX, SWAP_SUFFIX, undo_renames
from odradek.log.segments.log_segment import LOG_SUFFIX, SEGMENT_SUFFIXES, LogSegment
from odradek.log.segments.offset_index import index_path
from odradek.records.batch import HEADER_BYTES, parse_header

if TYPE_CHECKING:
    from odradek.log.unified_log import UnifiedLog

_logger = logging.getLogger(__name__)


def begin_swap(log: UnifiedLog, old: Sequence[LogSegment]) -> bool:
    """Do step 1, on the owner's thread. Return False, without a swap, if the log has changed."""
    if not _is_in_place(log, old):
        return False
    _rename(log.log_dir.files, log.directory, old[0].base_offset, CLEANED_SUFFIX, SWAP_SUFFIX)
    return True


def prepare_swap(log: UnifiedLog, old: Sequence[LogSegment]) -> None:
    """Sync the renames of step 1. May block, on any thread.

    Operations that need the disk or a descriptor come before the other changes. The old segments
    keep their files open and their indexes in memory, because the files are about to be renamed. An
    OSError undoes that.
    """
    try:
        for segment in old:
            segment.hold()
    except OSError:
        _release(old)
        raise
    log.log_dir.files.fsync_dir(log.directory)


def finish_swap(
    log: UnifiedLog, old: Sequence[LogSegment], size: int, now_ms: int, *, has_aborted: bool
) -> bool:
    """Do step 2, on the owner's thread. Return False if the log has changed, and undo step 1."""
    files, base = log.log_dir.files, old[0].base_offset
    if not _is_in_place(log, old):
        undo_swap(log, old)
        return False
    for segment in old:
        log.discard(segment)
    _rename(files, log.directory, base, SWAP_SUFFIX, "")
    log.replace_segments(old, size, now_ms, has_aborted=has_aborted)
    return True


def _release(old: Sequence[LogSegment]) -> None:
    for segment in old:
        segment.release()


def undo_swap(log: UnifiedLog, old: Sequence[LogSegment]) -> None:
    """Undo step 1: the old segments stay valid. Another log may have the name of a closed one."""
    _release(old)
    if not log.closed:
        base = old[0].base_offset
        paths = [index_path(log.directory, base, kind) + SWAP_SUFFIX for kind in SEGMENT_SUFFIXES]
        undo_renames(log.log_dir.files, paths)


def _is_in_place(log: UnifiedLog, old: Sequence[LogSegment]) -> bool:
    if log.closed or log.log_dir.offline or log.is_truncating:
        return False
    # A truncation into the gap after the last one has made it the active segment.
    return log.segments.are_in_place(old) and log.segments.active is not old[-1]


def _rename(files: Files, directory: str, base: int, source: str, target: str) -> None:
    """Rename the files, the ``.log`` first: it makes the segment exist. Indexes can be rebuilt."""
    for suffix in SEGMENT_SUFFIXES:
        path = index_path(directory, base, suffix)
        try:
            files.replace(path + source, path + target)
        except FileNotFoundError:
            if suffix == LOG_SUFFIX:
                raise


def remove_cleaned(files: Files, directory: str, names: Sequence[str]) -> None:
    """Remove the files of an unfinished cleaning among these names of a directory."""
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            unlink_if_exists(files, f"{directory}/{name}")


# -- after a crash ---------------------------------------------------------------------------------


def recover_swaps(files: Files, directory: str, names: list[str]) -> list[str]:
    """Complete or undo the swaps that a crash interrupted. Return the names that exist then."""
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    if not swaps:
        return names
    cleaned = [_offset(name) for name in names if name.endswith(CLEANED_SUFFIX)]
    first_cleaned = min(cleaned, default=None)
    if first_cleaned is not None:
        for name in [name for name in swaps if _offset(name) >= first_cleaned]:
            _logger.info("undoing the unfinished swap of %s/%s", directory, name)
            files.unlink(f"{directory}/{name}")
            swaps.remove(name)
    replaced = [
        (_offset(name), _next_offset(files, f"{directory}/{name}", _offset(name)))
        for name in swaps
        if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)
    ]
    for name in names:
        stem, dot, suffix = name.partition(".")
        if dot + suffix not in SEGMENT_SUFFIXES or not stem.isdigit():
            continue
        if any(first <= int(stem) < end for first, end in replaced):
            files.unlink(f"{directory}/{name}")
    for name in sorted(swaps, key=_log_first):
        _logger.info("finishing the swap of %s/%s", directory, name)
        files.replace(f"{directory}/{name}", f"{directory}/{name[: -len(SWAP_SUFFIX)]}")
    files.fsync_dir(directory)
    return files.listdir(directory)


def _log_first(name: str) -> tuple[bool, str]:
    return not name.endswith(LOG_SUFFIX + SWAP_SUFFIX), name


def _offset(name: str) -> int:
    return int(name.partition(".")[0])


def _next_offset(files: Files, path: str, base: int) -> int:
    """Return the offset after the last batch of a segment file."""
    size, position, following = files.size(path), 0, base
    handle = OpenFile(files, files.open(path, READ))
    while position + HEADER_BYTES <= size:
        header = parse_header(files.pread(handle.fd, HEADER_BYTES, position))
        following = header.last_offset + 1
        position += header.size_bytes
    return following
