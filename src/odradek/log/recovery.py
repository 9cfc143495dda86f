"""Opening a log: from what a clean stop left, or from what a crash left.

After a clean stop nothing is read but names, sizes and the end of the last segment. After a crash
the segments from the recovery point on are read batch by batch: at the first batch that is torn
or has a wrong CRC the segment is cut, and all behind it goes. Indexes are built anew, leader
epochs and producers taken in on the way (``LogLoader``, ``LogSegment.recover``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from odradek.config.log_config import LogConfig
from odradek.ids import ZERO_UUID, TopicPartition, Uuid
from odradek.log import checkpoints
from odradek.log.files import READ, Files, OpenFile, read_file
from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.log import UnifiedLog
from odradek.log.log_dir import LogDir
from odradek.log.offset_index import index_path
from odradek.log.producer_state import (
    SNAPSHOT_SUFFIX,
    WINDOW_SUFFIX,
    CorruptSnapshot,
    ProducerState,
)
from odradek.log.segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    Segment,
)
from odradek.records.batch import HEADER_BYTES, MAGIC_V2, BatchHeader, parse_header

TEMPORARY_SUFFIXES = (DELETED_SUFFIX, ".cleaned", ".swap", ".tmp")
RECOVERY_READ_BYTES = 1 << 20
WINDOW_SCAN_SEGMENTS = 2
"""How many segments' headers are read for the producers' windows when only a snapshot is there."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadOptions:
    """What the log directory knows of a log before it is opened; offsets from the checkpoints."""

    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    now_ms: int = 0
    jitter_ms: int = 0


def load_log(
    topic_partition: TopicPartition,
    directory: str,
    log_dir: LogDir,
    config: LogConfig,
    options: LoadOptions,
) -> UnifiedLog:
    """Opens the log in `directory`, recovering it unless the stop was clean; OSError may arise."""
    files = log_dir.files
    segments = list_segments(directory, log_dir, options)
    epochs = load_epochs(files, directory, segments)
    if not options.clean:
        recover(directory, log_dir, segments, epochs, options.recovery_point)
    if not segments:
        segments.append(_new_segment(directory, log_dir, options.log_start_offset, 0, options))
    segments[-1].active = True
    log_end_offset = segments[-1].next_offset()
    log_start_offset = max(options.log_start_offset, segments[0].base_offset)
    if log_start_offset > log_end_offset:
        # Everything was deleted, and the file that said so did not survive: begin anew behind it.
        for segment in segments:
            segment.mark_deleted()
        segments[:] = [_new_segment(directory, log_dir, log_start_offset, 0, options)]
        log_end_offset = log_start_offset
    epochs.truncate_from_end(log_end_offset + 1)
    epochs.truncate_from_start(log_start_offset)
    delete_producer_files(files, directory, above=log_end_offset)
    producers = load_producers(files, directory, segments, log_end_offset)
    topic_id = checkpoints.read_topic_id(
        files, f"{directory}/{checkpoints.PARTITION_METADATA_FILE}"
    )
    recovery_point = (
        log_end_offset if options.clean else min(options.recovery_point, log_end_offset)
    )
    return UnifiedLog(
        topic_partition,
        directory,
        log_dir,
        config,
        topic_id=topic_id or ZERO_UUID,
        on_disk=True,
        segments=segments,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        recovery_point=recovery_point,
        epochs=epochs,
        producers=producers,
        jitter_ms=options.jitter_ms,
    )


def new_log(
    topic_partition: TopicPartition,
    directory: str,
    log_dir: LogDir,
    config: LogConfig,
    options: LoadOptions,
    topic_id: Uuid,
) -> UnifiedLog:
    """An empty log in a directory that is there and empty: no file is made before the first
    append.
    """
    return UnifiedLog(
        topic_partition,
        directory,
        log_dir,
        config,
        topic_id=topic_id,
        on_disk=False,
        segments=[_new_segment(directory, log_dir, 0, 0, options)],
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        epochs=LeaderEpochs(),
        producers=ProducerState(),
        jitter_ms=options.jitter_ms,
    )


def _new_segment(
    directory: str, log_dir: LogDir, base_offset: int, size: int, options: LoadOptions
) -> Segment:
    return Segment(
        directory, base_offset, log_dir.pool, log_dir.cache, size=size, created_ms=options.now_ms
    )


def list_segments(directory: str, log_dir: LogDir, options: LoadOptions) -> list[Segment]:
    """The segments by their names, in order; files that a crash left half done are removed."""
    files = log_dir.files
    segments = []
    for name in files.listdir(directory):
        if name.endswith(TEMPORARY_SUFFIXES):
            files.unlink(f"{directory}/{name}")
        elif name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdigit():
            base_offset = int(name[: -len(LOG_SUFFIX)])
            size = files.size(f"{directory}/{name}")
            segments.append(_new_segment(directory, log_dir, base_offset, size, options))
    segments.sort(key=lambda segment: segment.base_offset)
    return segments


# -- leader epochs ---------------------------------------------------------------------------------


def load_epochs(files: Files, directory: str, segments: list[Segment]) -> LeaderEpochs:
    """The leader epochs of the checkpoint, or of all batches when that cannot be read."""
    path = f"{directory}/{checkpoints.LEADER_EPOCH_FILE}"
    try:
        return LeaderEpochs(checkpoints.read_epochs(files, path))
    except checkpoints.CorruptCheckpoint as error:
        _logger.warning("reading all leader epochs from the log again: %s", error)
    epochs = LeaderEpochs()
    for segment in segments:
        for _, header in segment.headers(0):
            epochs.assign(header.partition_leader_epoch, header.base_offset)
    epochs.dirty = True
    return epochs


# -- producers -------------------------------------------------------------------------------------


def producer_file_offsets(files: Files, directory: str) -> dict[int, set[str]]:
    """Offset -> suffixes of the producer files there are."""
    found: dict[int, set[str]] = {}
    for name in files.listdir(directory):
        stem, dot, suffix = name.partition(".")
        if stem.isdigit() and dot + suffix in (SNAPSHOT_SUFFIX, WINDOW_SUFFIX):
            found.setdefault(int(stem), set()).add(dot + suffix)
    return found


def delete_producer_files(files: Files, directory: str, *, above: int) -> None:
    """Removes the producer files of offsets that the log does not have (any more)."""
    for offset, suffixes in producer_file_offsets(files, directory).items():
        if offset > above:
            for suffix in suffixes:
                files.unlink(index_path(directory, offset, suffix))


def load_producers(
    files: Files, directory: str, segments: list[Segment], log_end_offset: int
) -> ProducerState:
    """The producers as of the log's end, with their whole windows.

    The newest snapshot that can be read, with its window file, and the headers of all batches
    behind it. A snapshot without a window file (Kafka's own) knows the last batch of each
    producer only: then the headers of the segments just before it are read too,
    `WINDOW_SCAN_SEGMENTS` at most.
    """
    state = ProducerState()
    found = producer_file_offsets(files, directory)
    start = segments[0].base_offset if segments else 0
    for offset in sorted(found, reverse=True):
        if offset > log_end_offset or SNAPSHOT_SUFFIX not in found[offset]:
            continue
        if _load_producer_files(files, directory, offset, segments, state):
            start = offset
            break
    for header in headers_between(segments, start, log_end_offset):
        state.replay(header)
    return state


def _load_producer_files(
    files: Files, directory: str, offset: int, segments: list[Segment], state: ProducerState
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


def _rebuild_windows(segments: list[Segment], end: int, state: ProducerState) -> None:
    before = [segment for segment in segments if segment.base_offset < end]
    scan = before[-WINDOW_SCAN_SEGMENTS:]
    replayed = ProducerState()
    for header in headers_between(scan, scan[0].base_offset if scan else end, end):
        replayed.replay(header)
    for producer_id, entry in replayed.producers.items():
        known = state.producers.get(producer_id)
        if known is not None and known.epoch == entry.epoch:
            known.batches = entry.batches


def headers_between(segments: list[Segment], start: int, end: int) -> Iterator[BatchHeader]:
    """The headers of all batches from offset `start` up to `end` (exclusive)."""
    for at, segment in enumerate(segments):
        if at + 1 < len(segments) and segments[at + 1].base_offset <= start:
            continue
        if segment.base_offset >= end or not segment.size:
            continue
        found = segment.locate(start) if start > segment.base_offset else (0, 0)
        if found is None:
            continue
        for _, header in segment.headers(found[0]):
            if header.base_offset >= end:
                return
            yield header


# -- recovery --------------------------------------------------------------------------------------


def recover(
    directory: str,
    log_dir: LogDir,
    segments: list[Segment],
    epochs: LeaderEpochs,
    recovery_point: int,
) -> None:
    """Checks the segments from the one with the recovery point on; cuts the log at the first
    fault.
    """
    first = max((at for at, s in enumerate(segments) if s.base_offset <= recovery_point), default=0)
    for at in range(first, len(segments)):
        segment = segments[at]
        next_base = segments[at + 1].base_offset if at + 1 < len(segments) else None
        cut = recover_segment(segment, log_dir, epochs)
        if cut:
            log_dir.torn_bytes_cut += cut
            _logger.warning(
                "cut %d torn bytes behind %d good ones from %s",
                cut,
                segment.size,
                segment.file.path,
            )
        if cut and next_base is not None:
            for later in segments[at + 1 :]:
                _logger.warning("removing %s behind a torn segment", later.file.path)
                for path in later.mark_deleted():
                    log_dir.files.unlink(path)
            del segments[at + 1 :]
            return


def recover_segment(segment: Segment, log_dir: LogDir, epochs: LeaderEpochs) -> int:
    """Reads every batch, builds the indexes anew and cuts behind the last good batch; bytes cut."""
    segment.reset_indexes()
    good = 0
    for position, header in good_batches(segment, log_dir.files):
        segment.index_batch(header, position)
        if header.partition_leader_epoch > epochs.latest:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
        good = position + header.size_bytes
    cut = segment.size - good
    if cut:
        log_dir.files.ftruncate(segment.file.open().fd, good)
        segment.size = good
    segment.make_inactive()
    return cut


def good_batches(segment: Segment, files: Files) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches from the start of the segment up to the first bad one.

    Good is: whole, magic 2, the CRC fits, offsets grow and fit into an index entry.
    """
    handle = OpenFile(files, files.open(segment.file.path, READ))
    position, chunk, start = 0, memoryview(b""), 0
    next_offset = segment.base_offset
    while position + HEADER_BYTES <= segment.size:
        if position + HEADER_BYTES > start + len(chunk):
            chunk, start = (
                memoryview(files.pread(handle.fd, RECOVERY_READ_BYTES, position)),
                position,
            )
        if len(chunk) < HEADER_BYTES:
            return
        header = parse_header(chunk, position - start)
        size = header.size_bytes
        if header.magic != MAGIC_V2 or size < HEADER_BYTES or position + size > segment.size:
            return
        if position + size > start + len(chunk):
            length = max(size, RECOVERY_READ_BYTES)
            chunk, start = memoryview(files.pread(handle.fd, length, position)), position
        batch = chunk[position - start : position - start + size]
        if len(batch) < size or crc32c(batch[21:]) != header.crc:
            return
        if header.base_offset < next_offset or header.last_offset < header.base_offset:
            return
        if header.last_offset - segment.base_offset >= 2**31:
            return
        next_offset = header.last_offset + 1
        yield position, header
        position += size
