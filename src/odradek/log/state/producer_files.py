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
"""Number of segments whose headers are read to rebuild the windows of Kafka's snapshot."""

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
    files: Files,
    directory: str,
    producer_files: dict[int, set[str]],
    *,
    below: int = 0,
    above: int,
) -> None:
    """Remove the producer files of offsets below the first segment, and above the log's end.

    A power cut may bring back files below the first segment. They may have transactions whose
    markers were deleted. The last stable offset would then stay at the log start.
    """
    for offset in [offset for offset in producer_files if not below <= offset <= above]:
        for suffix in sorted(producer_files.pop(offset)):
            files.unlink(index_path(directory, offset, suffix))


def delete_stray_producer_files(
    files: Files, directory: str, producer_files: dict[int, set[str]], bases: Container[int]
) -> None:
    """Remove the producer files of earlier stops. Keep those at segments' bases and the newest."""
    newest = max(producer_files, default=0)
    for offset in [o for o in producer_files if o != newest and o not in bases]:
        for suffix in sorted(producer_files.pop(offset)):
            files.unlink(index_path(directory, offset, suffix))


def reload_producers(
    files: Files,
    directory: str,
    segments: list[LogSegment],
    log_end_offset: int,
    files_end: int,
) -> ProducerStateManager:
    """Return the producers of a truncated log. Files of offsets above `files_end` are removed."""
    found = producer_files_by_offset(files.listdir(directory))
    delete_producer_files(files, directory, found, above=files_end)
    return load_producers(files, directory, found, segments, log_end_offset)


def load_producers(
    files: Files,
    directory: str,
    producer_files: dict[int, set[str]],
    segments: list[LogSegment],
    log_end_offset: int,
    recovered_from: int | None = None,
) -> ProducerStateManager:
    """Return the producers as of the log's end, with their whole windows.

    Load the newest snapshot that is intact and has its window file, and replay all batches after
    it. Without such a pair, load the newest readable snapshot. It has only the last batch of each
    producer, so the headers of the segments before it are read too. In a directory of Kafka, which
    has no window files, these are `WINDOW_SCAN_SEGMENTS` at most. Otherwise a power cut has damaged
    the window files, and all segments are read.

    Recovery has read the segments from offset `recovered_from` on. A snapshot above it is not used,
    because its window may not have reached the disk. The transaction indexes, which are empty from
    there on, are filled again.
    """
    last = log_end_offset if recovered_from is None else recovered_from
    offsets = [each for each in producer_files if each <= last]
    state, start = _load_newest(files, directory, producer_files, offsets, segments)
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


def _load_newest(
    files: Files,
    directory: str,
    producer_files: dict[int, set[str]],
    offsets: list[int],
    segments: list[LogSegment],
) -> tuple[ProducerStateManager, int]:
    """Return the newest complete state of the files at these offsets, and its offset."""
    without_windows: tuple[ProducerStateManager, int] | None = None
    for offset in sorted(offsets, reverse=True):
        state = _load_snapshot(files, directory, offset)
        if state is None:
            continue
        if not state.producers or _load_windows(files, directory, offset, state):
            return state, offset
        without_windows = without_windows or (state, offset)
    if without_windows is None:
        return ProducerStateManager(), segments[0].base_offset
    state, offset = without_windows
    are_kafkas = not any(WINDOW_SUFFIX in suffixes for suffixes in producer_files.values())
    before = [segment for segment in segments if segment.base_offset < offset]
    _rebuild_windows(before[-WINDOW_SCAN_SEGMENTS:] if are_kafkas else before, offset, state)
    return state, offset


def _load_snapshot(files: Files, directory: str, offset: int) -> ProducerStateManager | None:
    state = ProducerStateManager()
    path = index_path(directory, offset, SNAPSHOT_SUFFIX)
    try:
        state.load_snapshot(read_file(files, path))
    except FileNotFoundError:
        return None
    except CorruptSnapshot as error:
        _logger.warning(
            "%s is damaged: %s. The producers are read from an older snapshot or from the log",
            path,
            error,
        )
        return None
    return state


def _load_windows(files: Files, directory: str, offset: int, state: ProducerStateManager) -> bool:
    """Load the windows of a loaded snapshot. Return False if they are not on the disk."""
    path = index_path(directory, offset, WINDOW_SUFFIX)
    try:
        state.load_window(read_file(files, path))
    except FileNotFoundError:
        return False
    except CorruptSnapshot as error:
        _logger.warning("%s is damaged: %s. Its windows are read from the log", path, error)
        return False
    return True


def _rebuild_windows(segments: list[LogSegment], end: int, state: ProducerStateManager) -> None:
    """Take the windows from the batches of these segments below `end`."""
    replayed = ProducerStateManager()
    for _ in _replay(replayed, segments, segments[0].base_offset if segments else end, end):
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
