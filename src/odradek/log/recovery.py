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
from odradek.log.files import READ, Files, OpenFile
from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.log import UnifiedLog
from odradek.log.log_dir import LogDir
from odradek.log.producer_files import (
    delete_producer_files,
    load_producers,
    producer_files_by_offset,
)
from odradek.log.producer_state import ProducerState
from odradek.log.segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    Segment,
)
from odradek.records.batch import HEADER_BYTES, MAGIC_V2, BatchHeader, parse_header

TEMPORARY_SUFFIXES = (DELETED_SUFFIX, ".cleaned", ".swap", ".tmp")
RECOVERY_READ_BYTES = 1 << 20

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
    names = files.listdir(directory)
    segments = list_segments(directory, names, log_dir, options)
    epochs = load_epochs(files, directory, names, segments)
    if not options.clean:
        recover(log_dir, segments, epochs, options.recovery_point)
    if not segments:
        segments.append(_new_segment(directory, log_dir, options.log_start_offset, 0, options))
    segments[-1].active = True
    log_end_offset = segments[-1].next_offset()
    log_start_offset = max(options.log_start_offset, segments[0].base_offset)
    if log_start_offset > log_end_offset:
        # Everything was deleted, and the file that said so did not survive: begin anew behind it.
        for segment in segments:
            log_dir.remove_later(segment.mark_deleted(), options.now_ms)
        segments[:] = [_new_segment(directory, log_dir, log_start_offset, 0, options)]
        log_end_offset = log_start_offset
    epochs.truncate_from_end(log_end_offset + 1)
    epochs.truncate_from_start(log_start_offset)
    producer_files = producer_files_by_offset(names)
    delete_producer_files(files, directory, producer_files, above=log_end_offset)
    producers = load_producers(files, directory, producer_files, segments, log_end_offset)
    topic_id = None
    if checkpoints.PARTITION_METADATA_FILE in names:
        path = f"{directory}/{checkpoints.PARTITION_METADATA_FILE}"
        topic_id = checkpoints.read_topic_id(files, path)
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


def list_segments(
    directory: str, names: list[str], log_dir: LogDir, options: LoadOptions
) -> list[Segment]:
    """The segments by their names, in order; files that a crash left half done are removed."""
    files = log_dir.files
    segments = []
    for name in names:
        if name.endswith(TEMPORARY_SUFFIXES):
            files.unlink(f"{directory}/{name}")
        elif name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdigit():
            base_offset = int(name[: -len(LOG_SUFFIX)])
            size = files.size(f"{directory}/{name}")
            segments.append(_new_segment(directory, log_dir, base_offset, size, options))
    segments.sort(key=lambda segment: segment.base_offset)
    return segments


# -- leader epochs ---------------------------------------------------------------------------------


def load_epochs(
    files: Files, directory: str, names: list[str], segments: list[Segment]
) -> LeaderEpochs:
    """The leader epochs of the checkpoint, or of all batches when that cannot be read."""
    if checkpoints.LEADER_EPOCH_FILE not in names:
        return LeaderEpochs()
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


# -- recovery --------------------------------------------------------------------------------------


def recover(
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
