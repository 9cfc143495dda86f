"""The files with a log's producers: found, written, loaded (formats in `producer_state`)."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator

from odradek.environment.files import (
    READ,
    Files,
    OpenFile,
    read_file,
    unlink_if_exists,
    write_new_file,
)
from odradek.log.segments.log_segment import LogSegment
from odradek.log.segments.offset_index import index_path
from odradek.log.segments.transaction_index import AbortedTransaction
from odradek.log.state.producer_state_manager import (
    SNAPSHOT_SUFFIX,
    WINDOW_SUFFIX,
    CorruptSnapshot,
    ProducerStateManager,
)
from odradek.records.batch import BatchHeader
from odradek.records.control import read_marker

WINDOW_SCAN_SEGMENTS = 2
"""How many segments' headers are read for the producers' windows when only a snapshot is there."""

_logger = logging.getLogger(__name__)


def write_producer_files(
    files: Files, directory: str, offset: int, state: ProducerStateManager, *, sync: bool = False
) -> None:
    """Writes the state as of `offset`, as Kafka does and as a whole window."""
    path = index_path(directory, offset, SNAPSHOT_SUFFIX)
    write_new_file(files, path, state.encode_snapshot())
    if state.producers:
        path = index_path(directory, offset, WINDOW_SUFFIX)
        write_new_file(files, path, state.encode_window())
    if sync:
        sync_producer_files(files, directory, offset)


def sync_producer_files(files: Files, directory: str, offset: int) -> None:
    """Returns when the files of that offset, as far as there are any, are on the disk."""
    for suffix in (SNAPSHOT_SUFFIX, WINDOW_SUFFIX):
        try:
            handle = OpenFile(files, files.open(index_path(directory, offset, suffix), READ))
        except FileNotFoundError:
            continue
        files.fsync(handle.fd)


def producer_files_by_offset(names: list[str]) -> dict[int, set[str]]:
    """Offset -> suffixes of the producer files among these names."""
    found: dict[int, set[str]] = {}
    for name in names:
        stem, dot, suffix = name.partition(".")
        if dot + suffix in (SNAPSHOT_SUFFIX, WINDOW_SUFFIX) and stem.isdigit():
            found.setdefault(int(stem), set()).add(dot + suffix)
    return found


def remove_producer_files(files: Files, directory: str, offset: int) -> None:
    """Removes the files of that offset, as far as there are any."""
    for suffix in (SNAPSHOT_SUFFIX, WINDOW_SUFFIX):
        unlink_if_exists(files, index_path(directory, offset, suffix))


def delete_producer_files(
    files: Files, directory: str, producer_files: dict[int, set[str]], *, above: int
) -> None:
    """Removes the producer files of offsets that the log does not have (any more)."""
    for offset in [offset for offset in producer_files if offset > above]:
        for suffix in producer_files.pop(offset):
            files.unlink(index_path(directory, offset, suffix))


def delete_stray_producer_files(
    files: Files, directory: str, producer_files: dict[int, set[str]], bases: Container[int]
) -> None:
    """Removes the producer files of earlier stops: those of segments and the newest are kept."""
    newest = max(producer_files, default=0)
    for offset in [o for o in producer_files if o != newest and o not in bases]:
        for suffix in producer_files.pop(offset):
            files.unlink(index_path(directory, offset, suffix))


def load_producers(
    files: Files,
    directory: str,
    producer_files: dict[int, set[str]],
    segments: list[LogSegment],
    log_end_offset: int,
    recovered_from: int | None = None,
) -> ProducerStateManager:
    """The producers as of the log's end, with their whole windows.

    The newest snapshot that can be read, with its window file, and all batches behind it. A
    snapshot without a window file (Kafka's own) knows the last batch of each producer only: then
    the headers of the segments just before it are read too, `WINDOW_SCAN_SEGMENTS` at most.

    From offset `recovered_from` on the segments were read by recovery. No snapshot behind it is of
    use: its window may not have reached the disk. The transaction indexes, which are empty there,
    are filled again.
    """
    state = ProducerStateManager()
    start = segments[0].base_offset
    last = log_end_offset if recovered_from is None else recovered_from
    for offset in sorted(producer_files, reverse=True):
        if SNAPSHOT_SUFFIX not in producer_files[offset] or offset > last:
            continue
        if _load_producer_files(files, directory, offset, segments, state):
            start = offset
            break
    for segment, aborted in _replay(state, segments, start, log_end_offset):
        if recovered_from is not None and aborted.last_offset >= recovered_from:
            segment.append_aborted(aborted)
    return state


def _replay(
    state: ProducerStateManager, segments: list[LogSegment], start: int, end: int
) -> Iterator[tuple[LogSegment, AbortedTransaction]]:
    """Takes the batches in [start, end) into `state`; gives out what they aborted, and where."""
    for segment, position, header in batches_between(segments, start, end):
        marker = None
        if header.is_control:
            marker = read_marker(segment.read_batch(position, header.size_bytes))
        aborted = state.replay(header, marker)
        if aborted is not None:
            yield segment, aborted


def _load_producer_files(
    files: Files,
    directory: str,
    offset: int,
    segments: list[LogSegment],
    state: ProducerStateManager,
) -> bool:
    try:
        state.load_snapshot(read_file(files, index_path(directory, offset, SNAPSHOT_SUFFIX)))
    except CorruptSnapshot as error:
        _logger.warning("passing over a producer snapshot at %d: %s", offset, error)
        return False
    if not state.producers:
        return True
    try:
        state.load_window(read_file(files, index_path(directory, offset, WINDOW_SUFFIX)))
    except (FileNotFoundError, CorruptSnapshot):
        _rebuild_windows(segments, offset, state)
    return True


def _rebuild_windows(segments: list[LogSegment], end: int, state: ProducerStateManager) -> None:
    before = [segment for segment in segments if segment.base_offset < end]
    scan = before[-WINDOW_SCAN_SEGMENTS:]
    replayed = ProducerStateManager()
    for _ in _replay(replayed, scan, scan[0].base_offset if scan else end, end):
        pass
    state.take_windows(replayed)


def batches_between(
    segments: list[LogSegment], start: int, end: int
) -> Iterator[tuple[LogSegment, int, BatchHeader]]:
    """(segment, position, header) of all batches from offset `start` up to `end` (exclusive)."""
    for at, segment in enumerate(segments):
        if at + 1 < len(segments) and segments[at + 1].base_offset <= start:
            continue
        if segment.base_offset >= end or not segment.size:
            continue
        found = segment.locate(start) if start > segment.base_offset else (0, 0)
        if found is None:
            continue
        for position, header in segment.headers(found[0]):
            if header.base_offset >= end:
                return
            yield segment, position, header
