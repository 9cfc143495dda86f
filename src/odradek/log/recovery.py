"""Opening a log: from what a clean stop left, or from what a crash left.

After a clean stop nothing is read but names, sizes and the end of the last segment. After a crash
the segments from the recovery point on are read batch by batch: at the first batch that is torn
or has a wrong CRC the segment is cut, and all behind it goes. Indexes are built anew, leader
epochs and producers taken in on the way (``LogLoader``, ``LogSegment.recover``).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from odradek.config.log_config import LONG_MAX, LogConfig
from odradek.environment.files import READ, Files, OpenFile
from odradek.ids import TopicPartition, Uuid
from odradek.log.cleaner.segment_swap import recover_swaps
from odradek.log.directories.log_dir import LogDir
from odradek.log.segments.log_segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    LogSegment,
)
from odradek.log.segments.offset_index import CorruptIndex
from odradek.log.segments.transaction_index import TXN_INDEX_SUFFIX
from odradek.log.state import checkpoints
from odradek.log.state.leader_epochs import LeaderEpochFileCache
from odradek.log.state.producer_files import (
    delete_producer_files,
    delete_stray_producer_files,
    load_producers,
    producer_files_by_offset,
)
from odradek.log.state.producer_state_manager import ProducerStateManager
from odradek.log.unified_log import UnifiedLog
from odradek.records.batch import HEADER_BYTES, MAGIC_V2, BatchHeader, parse_header
from odradek.records.checksum import crc32c

TEMPORARY_SUFFIXES = (DELETED_SUFFIX, ".cleaned", ".swap", ".tmp")
RECOVERY_READ_BYTES = 1 << 20

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadOptions:
    """What the log directory knows of a log before it is opened; offsets from the checkpoints."""

    clean: bool
    """Closed whole: what is in the files is what was meant to be there."""
    synced: bool = True
    """When `clean`: all of it is on the disk, and not only in the page cache."""
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    cleaned_offset: int = 0
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
    names = recover_swaps(files, directory, files.listdir(directory))
    segments = list_segments(directory, names, log_dir, options)
    for segment in segments:
        segment.set_index_interval(config.index_interval_bytes)
    first_base = segments[0].base_offset if segments else 0
    log_start_offset = max(options.log_start_offset, first_base)
    epochs = load_epochs(files, directory, names, segments, log_start_offset)
    recovered_from = None
    if options.clean:
        remove_strays(segments)
    else:
        gaps_below = LONG_MAX if config.cleanup_compact else options.cleaned_offset
        if gaps_below:
            remove_replaced(segments, options.recovery_point, files)
        recovered_from = recover(log_dir, segments, epochs, options.recovery_point, gaps_below)
    damaged_from = damaged_txn_indexes(segments)
    recovered_from = recovered_from if damaged_from is None else damaged_from
    if not segments:
        segments.append(_new_segment(directory, log_dir, options.log_start_offset, 0, options))
    segments[-1].make_active()
    log_end_offset = segments[-1].next_offset()
    if log_start_offset > log_end_offset:
        _begin_anew(directory, log_dir, segments, log_start_offset, options)
        log_end_offset, recovered_from = log_start_offset, None
    epochs.truncate_from_end(log_end_offset + 1)
    epochs.truncate_from_start(log_start_offset)
    producer_files = producer_files_by_offset(names)
    delete_producer_files(files, directory, producer_files, above=log_end_offset)
    producers = load_producers(
        files, directory, producer_files, segments, log_end_offset, recovered_from
    )
    bases = {segment.base_offset for segment in segments}
    delete_stray_producer_files(files, directory, producer_files, bases)
    durable = options.clean and options.synced
    recovery_point = log_end_offset if durable else min(options.recovery_point, log_end_offset)
    return UnifiedLog(
        topic_partition,
        directory,
        log_dir,
        config,
        topic_id=_stored_topic_id(files, directory, names),
        on_disk=True,
        segments=segments,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        high_watermark=options.high_watermark,
        recovery_point=recovery_point,
        epochs=epochs,
        producers=producers,
        jitter_ms=options.jitter_ms,
    )


def _begin_anew(
    directory: str,
    log_dir: LogDir,
    segments: list[LogSegment],
    log_start_offset: int,
    options: LoadOptions,
) -> None:
    """Everything was deleted, and the file that said so did not survive: begins behind it."""
    for segment in segments:
        log_dir.remove_later(segment.mark_deleted(), options.now_ms)
    segments[:] = [_new_segment(directory, log_dir, log_start_offset, 0, options)]
    segments[0].create_files()
    log_dir.files.fsync_dir(directory)


def _stored_topic_id(files: Files, directory: str, names: Collection[str]) -> Uuid | None:
    """The topic id in ``partition.metadata``; None when the file is missing or torn."""
    if checkpoints.PARTITION_METADATA_FILE not in names:
        return None
    return checkpoints.read_topic_id(files, f"{directory}/{checkpoints.PARTITION_METADATA_FILE}")


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
        high_watermark=0,
        recovery_point=0,
        epochs=LeaderEpochFileCache(),
        producers=ProducerStateManager(),
        jitter_ms=options.jitter_ms,
    )


def _new_segment(
    directory: str, log_dir: LogDir, base_offset: int, size: int, options: LoadOptions
) -> LogSegment:
    return LogSegment(
        directory, base_offset, log_dir.pool, log_dir.cache, size=size, created_ms=options.now_ms
    )


def list_segments(
    directory: str, names: list[str], log_dir: LogDir, options: LoadOptions
) -> list[LogSegment]:
    """The segments by their names, in order; files that a crash left half done are removed."""
    files = log_dir.files
    segments = []
    present = set(names)
    for name in names:
        if name.endswith(TEMPORARY_SUFFIXES):
            files.unlink(f"{directory}/{name}")
        elif name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdigit():
            base_offset = int(name[: -len(LOG_SUFFIX)])
            size = files.size(f"{directory}/{name}")
            segments.append(_new_segment(directory, log_dir, base_offset, size, options))
            if name[: -len(LOG_SUFFIX)] + TXN_INDEX_SUFFIX in present:
                segments[-1].find_txn_index()
    segments.sort(key=lambda segment: segment.base_offset)
    return segments


def remove_strays(segments: list[LogSegment]) -> None:
    """Takes out the empty files of failed rolls: a segment that is empty by rights, the last one or
    one that was compacted, begins behind all data before it.
    """
    for at in range(len(segments) - 1, 0, -1):
        segment = segments[at]
        if not segment.size and segment.base_offset < segments[at - 1].next_offset():
            _remove_segments(segments, at, at + 1, "an empty file in the way")


def remove_replaced(segments: list[LogSegment], recovery_point: int, files: Files) -> None:
    """Takes out old segments that are back: a power cut kept the last step of a compaction's swap,
    and lost that their names went. Only what is flushed is compacted, and read here; a header that
    rotted on the disk removes nothing, for then the batches do not reach as far as it says.
    """
    at = 1
    while at < len(segments) and segments[at].base_offset <= recovery_point:
        before, offset = segments[at - 1], segments[at].base_offset
        if offset < before.next_offset() and _reaches(before, offset, files):
            _remove_segments(segments, at, at + 1, "a compacted segment has its place")
        else:
            at += 1


def _reaches(segment: LogSegment, offset: int, files: Files) -> bool:
    return any(header.last_offset >= offset for _, header in good_batches(segment, files))


def _remove_segments(segments: list[LogSegment], start: int, end: int, reason: str) -> None:
    for segment in segments[start:end]:
        _logger.warning("removing %s: %s", segment.file.path, reason)
        segment.remove_files()
    del segments[start:end]


def damaged_txn_indexes(segments: list[LogSegment]) -> int | None:
    """The base offset of the first segment whose transaction index makes no sense, None without
    one: from there on they are removed, to be built anew.
    """
    for at, segment in enumerate(segments):
        try:
            if segment.txn_index is not None:
                segment.txn_index.check(segment.base_offset)
        except CorruptIndex as error:
            _logger.warning("rebuilding transaction indexes: %s", error)
            for each in segments[at:]:
                each.reset_txn_index()
            return segment.base_offset
    return None


# -- leader epochs ---------------------------------------------------------------------------------


def load_epochs(
    files: Files,
    directory: str,
    names: list[str],
    segments: list[LogSegment],
    log_start_offset: int,
) -> LeaderEpochFileCache:
    """The leader epochs of the checkpoint, or of all batches when that is of no use.

    It is not when it is torn, or when it begins behind the log: then a log start offset that was
    raised, and with it the epochs, did not survive the crash.
    """
    if checkpoints.LEADER_EPOCH_FILE not in names:
        return LeaderEpochFileCache()
    path = f"{directory}/{checkpoints.LEADER_EPOCH_FILE}"
    try:
        epochs = LeaderEpochFileCache(checkpoints.read_epochs(files, path))
        if epochs.starts and epochs.starts[0] <= log_start_offset:
            return epochs
    except checkpoints.CorruptCheckpoint as error:
        _logger.warning("reading all leader epochs from the log again: %s", error)
    epochs = LeaderEpochFileCache()
    for segment in segments:
        for _, header in segment.headers(0):
            epochs.assign(header.partition_leader_epoch, header.base_offset)
    epochs.mark_changed()
    return epochs


# -- recovery --------------------------------------------------------------------------------------


def recover(
    log_dir: LogDir,
    segments: list[LogSegment],
    epochs: LeaderEpochFileCache,
    recovery_point: int,
    gaps_below: int = 0,
) -> int | None:
    """Checks the segments from the one with the recovery point on; cuts the log at the first fault.

    Compaction may have left gaps before segments up to `gaps_below`. Returns from which offset on
    it read; the transaction indexes are empty from there.
    """
    bases = [segment.base_offset for segment in segments]
    at = max(bisect_right(bases, recovery_point) - 1, 0)
    recovered_from = bases[at] if bases else None
    while at < len(segments):
        segment = segments[at]
        cut, next_offset = recover_segment(segment, log_dir, epochs)
        if cut:
            log_dir.torn_tail_cut(cut)
            _logger.warning(
                "cut %d torn bytes behind %d good ones from %s",
                cut,
                segment.size,
                segment.file.path,
            )
        at += 1
        while at < len(segments) and _is_stray(segments[at], next_offset):
            _remove_segments(segments, at, at + 1, "an empty file in the way")
        # Where a segment does not reach the next one, whole batches were lost at its end, or
        # compacted away.
        if at < len(segments) and (cut or _is_gap(next_offset, segments[at], gaps_below)):
            _remove_segments(segments, at, len(segments), "behind a torn segment")
    return recovered_from


def _is_gap(next_offset: int, segment: LogSegment, gaps_below: int) -> bool:
    base_offset = segment.base_offset
    return next_offset > base_offset or (next_offset < base_offset and base_offset > gaps_below)


def _is_stray(segment: LogSegment, next_offset: int) -> bool:
    """The empty file of a roll that failed: the log went on in the segment before it."""
    return segment.size == 0 and segment.base_offset < next_offset


def recover_segment(
    segment: LogSegment, log_dir: LogDir, epochs: LeaderEpochFileCache
) -> tuple[int, int]:
    """Reads every batch, builds the indexes anew and cuts behind the last good batch.

    Returns how many bytes were cut, and the offset behind the last good batch. The index of aborted
    transactions is empty: it needs the producers, who are taken in later.
    """
    built = segment.index_builder()
    good, next_offset = 0, segment.base_offset
    for position, header in good_batches(segment, log_dir.files):
        built.add(header, position)
        if header.partition_leader_epoch > epochs.latest:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
        good, next_offset = position + header.size_bytes, header.last_offset + 1
    cut = segment.size - good
    segment.recover_to(good, built)
    return cut, next_offset


def good_batches(segment: LogSegment, files: Files) -> Iterator[tuple[int, BatchHeader]]:
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
