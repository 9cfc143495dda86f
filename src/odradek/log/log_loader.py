"""Opening a log after a clean stop or a crash (Kafka's ``LogLoader``).

After a clean stop the loader reads names, sizes and the end of the last segment.

After a crash it reads the segments from the recovery point on, batch by batch. At the first batch
that is torn or has a wrong CRC it truncates the segment, and removes all later segments. It
rebuilds the indexes, and adds the leader epochs and producers of the batches.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from odradek.config.log_config import LONG_MAX, LogConfig
from odradek.environment.files import READ, Files, OpenFile
from odradek.ids import TopicPartition, Uuid
from odradek.log.cleaner.segment_swap import recover_swaps
from odradek.log.log_dir import LogDir
from odradek.log.segments.log_segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    LogSegment,
    last_expired_segment,
)
from odradek.log.segments.offset_index import CorruptIndex
from odradek.log.segments.transaction_index import TXN_INDEX_SUFFIX
from odradek.log.state import checkpoints
from odradek.log.state.leader_epochs import LeaderEpochFileCache, RecoveredLeaderEpochs
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

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
TEMPORARY_SUFFIXES = (DELETED_SUFFIX, ".cleaned", ".swap", ".tmp")
RECOVERY_READ_BYTES = 1 << 20
FAR_GAP = 1 << 30
"""Offsets between two segments that no lost segment explains, but a far batch of a leader."""

_logger = logging.getLogger(__name__)


class LoadOptions(NamedTuple):
    """Facts about a log that are known before the log is opened.

    The offsets are from the checkpoints of its log directory.
    """

    clean: bool
    """The log was closed completely: its files have their final content."""
    synced: bool = True
    """Used with `clean`: the files are on the disk, not only in the page cache."""
    recovery_point: int = 0
    has_recovery_point: bool = False
    """The checkpoint of recovery points has an entry for the log, possibly of 0."""
    log_start_offset: int = 0
    high_watermark: int = 0
    cleaned_offset: int = 0
    never_flushed: bool = False
    """The checkpoint of recovery points exists, and has no offset above 0 for the log."""
    now_ms: int = 0
    jitter_ms: int = 0


class LogLoader:
    """The opening of one log, or the creation of an empty one. Runs on one thread.

    Args:
        directory: The directory of the partition, below `log_dir`.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        log_dir: LogDir,
        config: LogConfig,
        options: LoadOptions,
    ) -> None:
        self._topic_partition = topic_partition
        self._directory = directory
        self._log_dir = log_dir
        self._files = log_dir.files
        self._config = config
        self._options = options
        self._segments: list[LogSegment] = []
        # The recovered segment that begins below the recovery point on the disk.
        self._passed_segment: LogSegment | None = None

    def empty(self, topic_id: Uuid) -> UnifiedLog:
        """Return an empty log in a directory that does not exist yet.

        The first append creates the files.
        """
        self._segments = [self._segment(0)]
        return UnifiedLog(
            self._topic_partition,
            self._directory,
            self._log_dir,
            self._config,
            topic_id=topic_id,
            on_disk=False,
            segments=self._segments,
            log_start_offset=0,
            log_end_offset=0,
            high_watermark=0,
            recovery_point=0,
            epochs=LeaderEpochFileCache(),
            producers=ProducerStateManager(),
            jitter_ms=self._options.jitter_ms,
        )

    def load(self) -> UnifiedLog:
        """Open the log in the directory. Recover it unless the stop was clean.

        Raises:
            OSError: A file cannot be read or written.
        """
        files, directory, options = self._files, self._directory, self._options
        names = recover_swaps(files, directory, files.listdir(directory))
        last_expired = None if options.clean else last_expired_segment(names)
        self._segments = self._list_segments(names, last_expired)
        if not options.clean:
            self._remove_deleted(last_expired)
        first_base = self._segments[0].base_offset if self._segments else 0
        log_start_offset = max(options.log_start_offset, first_base)
        found = RecoveredLeaderEpochs(self._read_epochs(names, log_start_offset), log_start_offset)
        recovered_from = None
        if options.clean:
            self._remove_strays()
        else:
            recovered_from = self._recover(found)
        damaged_from = self._damaged_txn_indexes()
        recovered_from = recovered_from if damaged_from is None else damaged_from
        if not self._segments:
            self._segments.append(self._segment(options.log_start_offset))
        self._segments[-1].make_active()
        log_end_offset = self._segments[-1].next_offset()
        if last_expired is not None:
            expired_end = self._end_of_expired(last_expired, log_end_offset)
            log_start_offset = max(log_start_offset, expired_end)
        if log_start_offset > log_end_offset:
            self._restart_at(log_start_offset)
            log_end_offset, recovered_from = log_start_offset, None
        epochs = found.cache if found.agree else self._rebuild_epochs()
        must_write_epochs = epochs.dirty
        epochs.truncate_from_end(log_end_offset)
        epochs.truncate_from_start(log_start_offset)
        topic_id, has_topic_id = None, checkpoints.PARTITION_METADATA_FILE in names
        if has_topic_id:
            path = f"{directory}/{checkpoints.PARTITION_METADATA_FILE}"
            topic_id = checkpoints.read_topic_id(files, path)
        # No other broker leaves a torn file, but Kafka before 2.8 had none.
        is_unflushed = not options.recovery_point if has_topic_id else options.never_flushed
        durable = options.clean and options.synced
        recovery_point = log_end_offset if durable else min(options.recovery_point, log_end_offset)
        log = UnifiedLog(
            self._topic_partition,
            directory,
            self._log_dir,
            self._config,
            topic_id=topic_id,
            has_torn_topic_id=topic_id is None and is_unflushed,
            on_disk=True,
            segments=self._segments,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            high_watermark=options.high_watermark,
            recovery_point=recovery_point,
            epochs=epochs,
            producers=self._load_producers(names, log_end_offset, recovered_from),
            jitter_ms=options.jitter_ms,
        )
        if not options.has_recovery_point and recovery_point < self._segments[-1].base_offset:
            log.flusher.hide_recovery_point()
        if must_write_epochs:
            log.write_leader_epochs()
        if last_expired is not None:
            # It stays until the log start is on the disk: another power cut may follow.
            self._log_dir.request_checkpoint()
            self._log_dir.remove_later([f"{directory}/{last_expired}"], options.now_ms)
        return log

    def _restart_at(self, log_start_offset: int) -> None:
        """Start an empty log at `log_start_offset`, because all records are below it.

        The deletion of all records had created an empty segment there, which did not survive the
        crash.
        """
        for segment in self._segments:
            self._log_dir.remove_later(segment.mark_deleted(), self._options.now_ms)
        self._segments = [self._segment(log_start_offset)]
        self._segments[0].create_files()
        self._files.fsync_dir(self._directory)

    def _end_of_expired(self, name: str, log_end_offset: int) -> int:
        """Return the end of the last segment that retention has deleted, or 0 if it is too low.

        A power cut may keep the new name of the deleted segment (``.expired.deleted``), and lose
        the name of the next one and the log start offset. The offsets are not used again.
        """
        base_offset = int(name.partition(".")[0])
        if base_offset < log_end_offset:
            return 0
        path, end = f"{self._directory}/{name}", base_offset
        for _, header in good_batches(self._files, path, base_offset, self._files.size(path)):
            end = header.last_offset + 1
        return end

    # -- segments ----------------------------------------------------------------------------------

    def _segment(self, base_offset: int, size: int = 0) -> LogSegment:
        segment = LogSegment(
            self._directory,
            base_offset,
            self._log_dir.pool,
            self._log_dir.cache,
            size=size,
            created_ms=self._options.now_ms,
        )
        segment.set_index_interval(self._config.index_interval_bytes)
        return segment

    def _list_segments(self, names: list[str], kept: str | None) -> list[LogSegment]:
        """Return the segments in order, by file names.

        Files that a crash left unfinished are removed, apart from the file `kept`. So is an index
        whose segment is gone: a power cut may keep some of the renames of a removed segment. A new
        segment of this base offset would take the entries for its own.
        """
        segments = []
        present = set(names)
        for name in names:
            path = f"{self._directory}/{name}"
            if name.endswith(TEMPORARY_SUFFIXES):
                if name != kept:
                    self._files.unlink(path)
            elif name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdigit():
                base_offset = int(name[: -len(LOG_SUFFIX)])
                segments.append(self._segment(base_offset, self._files.size(path)))
                if name[: -len(LOG_SUFFIX)] + TXN_INDEX_SUFFIX in present:
                    segments[-1].find_txn_index()
            elif (
                name.endswith(INDEX_SUFFIXES) and name.partition(".")[0] + LOG_SUFFIX not in present
            ):
                _logger.warning("removing %s: it has no %s file", path, LOG_SUFFIX)
                self._files.unlink(path)
        segments.sort(key=lambda segment: segment.base_offset)
        return segments

    def _remove_deleted(self, last_expired: str | None) -> None:
        """Remove segments below the log start that were deleted and exist again.

        A power cut may lose the new name of a deleted segment, and keep the new name of a later
        one. Segments are deleted in order, so the log starts after the last one (`last_expired`).
        Recovery would take the gap between them for lost data, and truncate the log there.
        """
        base = int(last_expired.partition(".")[0]) if last_expired else 0
        segments, log_start = self._segments, self._options.log_start_offset
        bases = [segment.base_offset for segment in segments]
        count = bisect_left(bases, base)
        while count + 1 < len(bases) and bases[count + 1] <= log_start:
            count += 1
        self._remove(0, count, "it was deleted before the crash")

    def _remove_strays(self) -> None:
        """Remove the empty files of failed rolls.

        Other empty segments (the last one, or a compacted one) begin at or above the end of the
        data before them.
        """
        segments = self._segments
        for at in range(len(segments) - 1, 0, -1):
            segment = segments[at]
            if not segment.size and segment.base_offset < segments[at - 1].next_offset():
                self._remove(at, at + 1, "an empty file of a failed roll")

    def _remove_replaced(self) -> None:
        """Remove old segments that a compaction replaced and that exist again.

        A power cut may keep the last step of a compaction's swap and lose the removal of the old
        names. Compaction covers only flushed segments, and only these are checked here. If a header
        was damaged on the disk nothing is removed, because the batches do not reach the offset that
        the header claims.
        """
        at, segments = 1, self._segments
        while at < len(segments) and segments[at].base_offset <= self._options.recovery_point:
            before, offset = segments[at - 1], segments[at].base_offset
            if offset < before.next_offset() and self._reaches(before, offset):
                self._remove(at, at + 1, "a compacted segment has replaced it")
            else:
                at += 1

    def _reaches(self, segment: LogSegment, offset: int) -> bool:
        return any(
            header.last_offset >= offset for _, header in _good_batches_of(segment, self._files)
        )

    def _remove(self, start: int, end: int, reason: str) -> None:
        for segment in self._segments[start:end]:
            _logger.warning("the segment %s is removed from the log: %s", segment.file.path, reason)
            segment.remove_files()
        del self._segments[start:end]

    def _damaged_txn_indexes(self) -> int | None:
        """Empty the transaction indexes from the first damaged index on. They are rebuilt later.

        Their files stay until then (`TransactionIndex.write_rebuilt`).

        Returns:
            The base offset of the segment with the first damaged index, or None if there is none.
        """
        for at, segment in enumerate(self._segments):
            try:
                if segment.txn_index is not None:
                    segment.txn_index.check(segment.base_offset)
            except CorruptIndex as error:
                _logger.warning(
                    "%s. This transaction index and the later ones are built again", error
                )
                for each in self._segments[at:]:
                    each.rebuild_txn_index()
                return segment.base_offset
        return None

    # -- leader epochs and producers ---------------------------------------------------------------

    def _read_epochs(self, names: list[str], log_start_offset: int) -> LeaderEpochFileCache | None:
        """Return the leader epochs of the checkpoint, or None if it is invalid.

        The checkpoint is invalid if it is torn, or if it begins above the start of the log. In the
        second case a raised log start offset was lost in the crash, but the epochs of the lower
        offsets were already removed. It may only be missing while the log has no batch.
        """
        if checkpoints.LEADER_EPOCH_FILE not in names:
            return None
        path = f"{self._directory}/{checkpoints.LEADER_EPOCH_FILE}"
        try:
            epochs = LeaderEpochFileCache(checkpoints.read_epochs(self._files, path))
        except checkpoints.CorruptCheckpoint as error:
            _logger.warning("%s. The leader epochs are read from the log", error)
            return None
        return epochs if epochs.starts and epochs.starts[0] <= log_start_offset else None

    def _rebuild_epochs(self) -> LeaderEpochFileCache:
        """Return the leader epochs of all batches."""
        epochs = LeaderEpochFileCache()
        for segment in self._segments:
            for _, header in segment.headers(0):
                epochs.assign(header.partition_leader_epoch, header.base_offset)
        if self._segments and any(segment.size for segment in self._segments):
            epochs.mark_changed()
        return epochs

    def _load_producers(
        self, names: list[str], log_end_offset: int, recovered_from: int | None
    ) -> ProducerStateManager:
        files, directory, segments = self._files, self._directory, self._segments
        found = producer_files_by_offset(names)
        first_base = segments[0].base_offset
        delete_producer_files(files, directory, found, below=first_base, above=log_end_offset)
        producers = load_producers(
            files, directory, found, segments, log_end_offset, recovered_from
        )
        for segment in segments:
            if segment.txn_index is not None:
                segment.txn_index.write_rebuilt()
        self._sync_passed_txn_index(names)
        bases = {segment.base_offset for segment in segments}
        delete_stray_producer_files(files, directory, found, bases)
        return producers

    def _sync_passed_txn_index(self, names: list[str]) -> None:
        """Sync the new transaction index of the segment that has the recovery point on the disk.

        The next append may roll the log exactly at the recovery point. Until the next flush, a
        start after a power cut then does not read this segment again. Without its index, readers of
        committed records would see aborted ones. If recovery has cut the only marker of an aborted
        transaction, the removed index must not exist again: it would hide committed records.
        """
        segment = self._passed_segment
        if segment is None:
            return
        if segment.txn_index is not None:
            segment.txn_index.sync()
        elif segment.path(TXN_INDEX_SUFFIX).rpartition("/")[2] not in names:
            return
        self._files.fsync_dir(self._directory)

    # -- recovery ----------------------------------------------------------------------------------

    def _recover(self, epochs: RecoveredLeaderEpochs) -> int | None:
        """Check the segments from the recovery point on, and truncate the log at the first fault.

        The epochs are compared with the last batch before these segments. All epochs up to that
        batch must be in the file, so a file that lacks one of them lacks the epoch of that batch.

        Returns:
            The first offset that was checked. The transaction indexes are empty from there on.
        """
        options, segments = self._options, self._segments
        gaps_below = self._gaps_below()
        if gaps_below:
            self._remove_replaced()
        bases = [segment.base_offset for segment in segments]
        at = max(bisect_right(bases, options.recovery_point) - 1, 0)
        recovered_from = bases[at] if bases else None
        if bases and bases[at] < options.recovery_point:
            self._passed_segment = segments[at]
        last_before = segments[at - 1].last_batch() if at else None
        if last_before is not None:
            epochs.check(last_before)
        while at < len(segments):
            segment = segments[at]
            cut, next_offset = self._recover_segment(segment, epochs)
            if cut:
                self._log_dir.torn_tail_cut(cut)
                _logger.warning(
                    "cut %d torn bytes after %d valid bytes from %s",
                    cut,
                    segment.size,
                    segment.file.path,
                )
                # No flush follows if all records are on the disk. After a clean stop and a power
                # cut the torn bytes would return, and the next start does not check them.
                segment.flush(indexes=False)
            at += 1
            while at < len(segments) and _is_stray(segments[at], next_offset):
                self._remove(at, at + 1, "an empty file of a failed roll")
            # If a segment does not reach the next one, whole batches were lost at its end or
            # compacted away.
            if at < len(segments) and (cut or _is_gap(next_offset, segments[at], gaps_below)):
                self._remove(at, len(segments), "it follows a torn segment")
        return recovered_from

    def _gaps_below(self) -> int:
        """Return the offset up to which compaction may have left gaps before segments.

        Compaction covers only records below the recovery point on the disk. A gap above it is lost
        data, for example a segment whose name a power cut has removed. Each log that this broker
        has rolled has an entry for its recovery point, which may be 0. Without an entry the
        directory is a copy of another one without its checkpoints, so each gap is permitted.

        So it is in a log directory that Kafka was the last to use (`OWN_MARK`). Kafka's follower
        begins a segment with the first offset of a batch, and Kafka's compaction does not stop at
        the recovery point on the disk.
        """
        options = self._options
        if not self._config.cleanup_compact:
            return options.cleaned_offset
        if not options.has_recovery_point:
            return LONG_MAX
        return max(options.cleaned_offset, options.recovery_point)

    def _recover_segment(
        self, segment: LogSegment, epochs: RecoveredLeaderEpochs
    ) -> tuple[int, int]:
        """Read every batch, build the indexes, and truncate after the last valid batch.

        The index of aborted transactions is empty afterwards. It needs the producers, which are
        loaded later.

        Returns:
            The number of bytes that were cut off, and the offset after the last valid batch.
        """
        built = segment.index_builder()
        good, next_offset = 0, segment.base_offset
        for position, header in _good_batches_of(segment, self._files, epochs.last):
            built.add(header, position)
            epochs.add(header)
            good, next_offset = position + header.size_bytes, header.last_offset + 1
        cut = segment.size - good
        segment.recover_to(good, built)
        return cut, next_offset


def _is_gap(next_offset: int, segment: LogSegment, gaps_below: int) -> bool:
    base_offset = segment.base_offset
    if next_offset >= base_offset:
        return next_offset > base_offset
    # A follower begins a segment above its log end if a batch is too far away for an index entry.
    return base_offset > gaps_below and base_offset - next_offset < FAR_GAP


def _is_stray(segment: LogSegment, next_offset: int) -> bool:
    """Return whether this is the empty file of a failed roll: the log continued before it."""
    return segment.size == 0 and segment.base_offset < next_offset


def _good_batches_of(
    segment: LogSegment, files: Files, leader_epoch: int = -1
) -> Iterator[tuple[int, BatchHeader]]:
    path, base_offset = segment.file.path, segment.base_offset
    return good_batches(files, path, base_offset, segment.size, leader_epoch)


def good_batches(
    files: Files, path: str, base_offset: int, file_size: int, leader_epoch: int = -1
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the batches of a segment's file up to the first invalid one.

    A valid batch is complete, has magic 2 and a correct CRC, and continues the offsets. Its offsets
    fit into an index entry. Its leader epoch is not below the epoch of the batch before. If a
    truncation was not synced, a power cut can bring back removed batches behind new ones.

    Args:
        leader_epoch: The epoch of the batch before the file, or -1.
    """
    handle = OpenFile(files, files.open(path, READ))
    position, chunk, start = 0, memoryview(b""), 0
    next_offset = base_offset
    while position + HEADER_BYTES <= file_size:
        if position + HEADER_BYTES > start + len(chunk):
            chunk, start = (
                memoryview(files.pread(handle.fd, RECOVERY_READ_BYTES, position)),
                position,
            )
        if len(chunk) < HEADER_BYTES:
            return
        header = parse_header(chunk, position - start)
        size = header.size_bytes
        if header.magic != MAGIC_V2 or size < HEADER_BYTES or position + size > file_size:
            return
        if position + size > start + len(chunk):
            length = max(size, RECOVERY_READ_BYTES)
            chunk, start = memoryview(files.pread(handle.fd, length, position)), position
        batch = chunk[position - start : position - start + size]
        if len(batch) < size or crc32c(batch[21:]) != header.crc:
            return
        if header.base_offset < next_offset or header.last_offset < header.base_offset:
            return
        if header.last_offset - base_offset >= 2**31:
            return
        if 0 <= header.partition_leader_epoch < leader_epoch:
            _logger.warning(
                "%s: the batch at offset %d has leader epoch %d after %d. It is a remainder of a "
                "truncated log and is cut off",
                path,
                header.base_offset,
                header.partition_leader_epoch,
                leader_epoch,
            )
            return
        leader_epoch = max(leader_epoch, header.partition_leader_epoch)
        next_offset = header.last_offset + 1
        yield position, header
        position += size
