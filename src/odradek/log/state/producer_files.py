"""The files with a log's producers: listed, written, loaded (see `producer_state_manager`)."""

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
"""Number of segments whose headers are read to rebuild the windows if there is only a snapshot."""

_logger = logging.getLogger(__name__)


def write_producer_files(
    files: Files, directory: str, offset: int, state: ProducerStateManager, *, sync: bool = False
) -> None:
    """Write the state as of `offset`: Kafka's snapshot, and the windows."""
    path = index_path(directory, offset, SNAPSHOT_SUFFIX)
    write_new_file(files, path, state.encode_snapshot())
    if state.producers:
        path = index_path(directory, offset, WINDOW_SUFFIX)
        write_new_file(files, path, state.encode_window())
    if sync:
        sync_producer_files(files, directory, offset)


def sync_producer_files(files: Files, directory: str, offset: int) -> None:
    """Return when the existing files of that offset are on the disk."""
    for suffix in (SNAPSHOT_SUFFIX, WINDOW_SUFFIX):
        try:
            handle = OpenFile(files, files.open(index_path(directory, offset, suffix), READ))
        except FileNotFoundError:
            continue
        files.fsync(handle.fd)


def producer_files_by_offset(names: list[str]) -> dict[int, set[str]]:
    """Return offset -> suffixes of the producer files among these names."""
    found: dict[int, set[str]] = {}
    for name in names:
        stem, dot, suffix = name.partition(".")
        if dot + suffix in (SNAPSHOT_SUFFIX, WINDOW_SUFFIX) and stem.isdigit():
            found.setdefault(int(stem), set()).add(dot + suffix)
    return found


def remove_producer_files(files: Files, directory: str, offset: int) -> None:
    """Remove the existing files of that offset."""
    for suffix in (SNAPSHOT_SUFFIX, WINDOW_SUFFIX):
        unlink_if_exists(files, index_path(directory, offset, suffix))


def delete_producer_files(
    files: Files, directory: str, producer_files: dict[int, set[str]], *, above: int
) -> None:
    """Remove the producer files of offsets above the log's end."""
    for offset in [offset for offset in producer_files if offset > above]:
        for suffix in producer_files.pop(offset):
            files.unlink(index_path(directory, offset, suffix))


def delete_stray_producer_files(
    files: Files, directory: str, producer_files: dict[int, set[str]], bases: Container[int]
) -> None:
    """Remove the producer files of earlier stops. Keep those at segments' bases and the newest."""
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
    """Return the producers as of the log's end, with their whole windows.

    Load the newest readable snapshot with its window file, and replay all batches after it. A
    snapshot without a window file (Kafka's own) has only the last batch of each producer. In that
    case the headers of the segments before it are read too, `WINDOW_SCAN_SEGMENTS` at most.

    Recovery has read the segments from offset `recovered_from` on. A snapshot above it is not used,
    because its window may not have reached the disk. The transaction indexes, which are empty from
    there on, are filled again.
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
    """Replay the batches in [start, end). Yield the aborted transactions and their segments."""
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
        _logger.warning("skipping a damaged producer snapshot at %d: %s", offset, error)
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
    state.use_windows(replayed)


def batches_between(
    segments: list[LogSegment], start: int, end: int
) -> Iterator[tuple[LogSegment, int, BatchHeader]]:
    """Yield (segment, position, header) of all batches from offset `start` to `end` (exclusive)."""
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
