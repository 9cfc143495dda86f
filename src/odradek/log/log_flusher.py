"""The flushes of one log, and its recovery point.

The recovery point is the offset below which every batch is on the disk. A roll writes the indexes
and the producer snapshot of the old segment, and the next flush syncs them. Until then the
checkpoint's recovery point stays at the beginning of that segment. A start after a crash reads the
segment again from there, and builds its indexes again.

The checkpoint's recovery point is never inside the active segment, unless the log was closed
(`mark_synced`). A start after a crash reads that segment from its beginning anyway. The next roll
then needs no fsync before the first append to the new segment.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from odradek.config.log_config import LONG_MAX
from odradek.environment.files import READ, OpenFile
from odradek.ids import TopicPartition
from odradek.log.log_dir import LogDir
from odradek.log.segments.log_segment import LogSegment
from odradek.log.segments.log_segments import LogSegments
from odradek.log.state import checkpoints
from odradek.log.state.producer_files import sync_producer_files


class FlushedLog(Protocol):
    """The log that owns a flusher."""

    @property
    def log_end_offset(self) -> int: ...


class LogFlusher:
    """Owner of the recovery point.

    `flush_to` may be called from any thread, and the other methods by the owner of the log.

    The flusher has a weak reference to its log. A deleted log is then in no reference cycle, and is
    freed at once. The callers of the methods keep the log alive.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        log_dir: LogDir,
        segments: LogSegments,
        recovery_point: int,
        log: weakref.ref[FlushedLog],
    ) -> None:
        self._topic_partition = topic_partition
        self._directory = directory
        self._log_dir = log_dir
        self._segments = segments
        self._log = log
        self.recovery_point = recovery_point
        self.last_flush_ms = -1
        self._rolled: list[LogSegment] = []
        self._lock = threading.Lock()
        # Held for two assignments only, never during an fsync.
        self._point_lock = threading.Lock()
        self._point_max = LONG_MAX
        self._directory_synced = False
        self._epochs_synced = True
        # Files that were created, and those whose names are on the disk.
        self._names_created = 1
        # A flush up to this recovery point has synced the directory after it had all segments.
        self._names_synced = int(recovery_point > segments.active.base_offset)
        self._closed = False
        self._all_synced = False
        self._is_hidden = False

    def hide_recovery_point(self) -> None:
        """Keep the log out of the checkpoint until a flush has reached the active segment.

        The log was loaded without an entry in the checkpoint. It may be a copy with gaps that
        compaction has left, and after a crash an entry would declare the gaps above it lost data.
        """
        self._is_hidden = True

    @property
    def checkpoint_entry(self) -> int | None:
        """`checkpoint_offset`, or None while the log must not have an entry in the checkpoint."""
        return None if self._is_hidden else self.checkpoint_offset

    @property
    def checkpoint_offset(self) -> int:
        """The recovery point for the checkpoint; see the module. May be read from any thread."""
        if self._all_synced:
            return self.recovery_point
        base_offset = self._segments.active.base_offset  # before `_rolled`: see `segment_rolled`
        return min([base_offset, self.recovery_point, *(s.base_offset for s in self._rolled)])

    def _log_end_offset(self) -> int:
        log = self._log()
        assert log is not None, "the caller has a reference to it"
        return log.log_end_offset

    def file_created(self) -> None:
        """Have the next flush sync the directory, because it has a new file."""
        self._directory_synced = False

    def epochs_written(self) -> None:
        """Have the next flush sync ``leader-epoch-checkpoint``, which was replaced.

        Called before a batch of the new epoch is appended, so that the recovery point does not pass
        that batch before the epoch is on the disk.
        """
        self._epochs_synced = False
        self._directory_synced = False

    def sync_head(self) -> None:
        """Sync the name of the only segment, before a second segment is created.

        The log also gets an entry in the checkpoint of recovery points. A start after a power cut
        then takes a gap between its segments for lost data.

        Otherwise a power cut could keep the name of the second segment without the name of the
        first. The log would then start at the second segment. A replica with such a log start could
        be elected, and the other replicas would take it over. `LogManager.sync_new_logs` does both
        on a thread when the log has its first records, so that the owner rarely has to.

        Raises:
            OSError: The directory could not be synced, or the checkpoint not be written.
        """
        if len(self._segments) == 1:
            self._sync_segment_names()
            self._log_dir.add_to_checkpoint(self._topic_partition)
            self._is_hidden = False  # one segment has no gaps

    def sync_next_head(self, count: int) -> None:
        """Sync the name of the segment that becomes the first one when `count` are deleted.

        Otherwise a power cut could keep the name of a later segment only (`sync_head`). If no later
        segment exists, this cannot happen. A flush into the segment has synced its name already.

        Raises:
            OSError: The directory could not be synced.
        """
        bases = self._segments.bases
        if count + 1 < len(bases) and bases[count] >= self.recovery_point:
            self._sync_segment_names()

    def _sync_segment_names(self) -> None:
        created = self._names_created
        if self._names_synced < created:
            self._log_dir.files.fsync_dir(self._directory)
            self._names_synced = created

    def segment_rolled(self, segment: LogSegment) -> None:
        """Have the next flush sync the files of `segment`.

        Called before another segment becomes the active one.
        """
        self._rolled.append(segment)
        self._names_created += 1
        self._directory_synced = False

    def flush_to(self, offset: int) -> None:
        """Return when the records below `offset` and the files of rolled segments are on the disk.

        Concurrent calls share an fsync. A failed fsync takes the directory offline and is not
        repeated. Without free descriptors the directory stays online, and the next flush syncs the
        same files again.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR. The fsync failed, a file could not be opened, or the
                directory is offline.
        """
        with self._lock:
            if offset <= self.recovery_point and not self._rolled and self._epochs_synced:
                return
            if self._log_dir.offline:
                raise self._log_dir.error()
            if self._closed:
                raise self._log_dir.error("the log was closed")
            rolled = list(self._rolled)
            end = offset if offset <= self._segments.active.base_offset else self._log_end_offset()
            try:
                self._sync(rolled, end)
            except OSError as error:
                if self._closed:
                    raise self._log_dir.error("the log was closed") from error
                raise self._log_dir.io_failed(error, f"flushing {self._topic_partition}") from error
            with self._point_lock:
                self.recovery_point = max(self.recovery_point, min(end, self._point_max))
                if self.recovery_point >= self._segments.active.base_offset:
                    self._is_hidden = False
            for segment in rolled:
                if segment.base_offset < end:
                    self._rolled.remove(segment)

    def flush_if_due(self, now_ms: int, flush_ms: int) -> bool:
        """Flush rolled segments. Flush all records if the last flush is `flush_ms` ago.

        Runs on a thread. The names of the segments are synced in any case.

        Returns:
            Whether the checkpoint's recovery point has moved.
        """
        before = self.checkpoint_offset
        unflushed = self.recovery_point < self._log_end_offset()
        if self._closed or self._log_dir.offline or not (unflushed or self._rolled):
            self.last_flush_ms = now_ms
            return False
        if self.last_flush_ms < 0:
            self.last_flush_ms = now_ms
        active_base = self._segments.active.base_offset
        if now_ms - self.last_flush_ms >= flush_ms:
            self.flush_to(self._log_end_offset())
            self.last_flush_ms = now_ms  # not after an error: the next call tries again
        elif self._rolled or self.recovery_point < active_base:
            self.flush_to(active_base)
        self._sync_names_early()
        return self.checkpoint_offset > before

    def sync_first_names(self) -> bool:
        """Sync the name of a new log's first segment, so that `sync_head` need not. For threads.

        Returns:
            False if the first append has not ended: the file may not exist yet.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR. The directory could not be synced.
        """
        log = self._log()
        if log is None or self._closed or self._log_dir.offline:
            return True
        if log.log_end_offset == self._segments.active.base_offset:
            return False
        try:
            self._sync_segment_names()
        except OSError as error:
            if not self._closed:
                raise self._log_dir.io_failed(error, f"syncing {self._directory}") from error
        return True

    def _sync_names_early(self) -> None:
        try:
            self._sync_segment_names()
        except OSError as error:
            if self._closed:
                raise self._log_dir.error("the log was closed") from error
            raise self._log_dir.io_failed(error, f"syncing {self._directory}") from error

    @property
    def truncating_from(self) -> int | None:
        """The offset of `begin_truncation` until `truncate` has cut the log, then None."""
        offset = self._point_max
        return offset if offset < LONG_MAX else None

    def begin_truncation(self, offset: int) -> None:
        """Keep the recovery point at or below `offset` until `truncate` has returned.

        This does not wait for a flush in progress.

        Args:
            offset: An offset at or below the new end of the log: the base offset of the first
                segment that changes.
        """
        with self._point_lock:
            self._point_max = offset
            self.recovery_point = min(self.recovery_point, offset)

    def truncate(self, cut: Callable[[], int]) -> None:
        """Call `cut`, which truncates the log and returns its new end, while no flush runs.

        Raises:
            KafkaError: The log was closed. Another log may have its directory's name by now.
        """
        with self._lock:
            if self._closed:
                raise self._log_dir.error("the log was closed")
            end = cut()
            with self._point_lock:
                self._point_max = LONG_MAX
                self.recovery_point = min(self.recovery_point, end)
            active = self._segments.active
            self._rolled = [s for s in self._rolled if s in self._segments and s is not active]
            self._names_created += 1
            self._directory_synced = self._epochs_synced = False

    def sync_truncated(self) -> None:
        """Return when a truncation is on the disk.

        Raises:
            OSError: A file could not be synced.
        """
        with self._lock:
            self._segments.active.flush(indexes=False)
            self._sync_names()

    def close(self) -> None:
        """Refuse every flush from now on."""
        self._closed = True

    def mark_synced(self) -> None:
        """Record that the log is closed and completely on the disk."""
        self._all_synced = True

    def _sync(self, rolled: list[LogSegment], end: int) -> None:
        """Sync the segments between the recovery point and `end`, and the files of rolled segments.

        The indexes of the active segment need no sync, because recovery reads it from its
        beginning.
        """
        segments = list(self._segments)
        files = self._log_dir.files
        for at, segment in enumerate(segments):
            next_base = segments[at + 1].base_offset if at + 1 < len(segments) else None
            is_synced = (next_base or end + 1) <= self.recovery_point and segment not in rolled
            if segment.base_offset >= end or is_synced:
                continue
            segment.flush(indexes=next_base is not None)
            if next_base is not None:
                sync_producer_files(files, self._directory, next_base)
        if not self._directory_synced:
            self._sync_names()

    def _sync_names(self) -> None:
        """Sync the small files and the names in the directory, and the name of the directory."""
        # First, because files that are created from now on are not covered.
        self._directory_synced = self._epochs_synced = True
        created = self._names_created
        try:
            for name in (checkpoints.LEADER_EPOCH_FILE, checkpoints.PARTITION_METADATA_FILE):
                self._sync_file(f"{self._directory}/{name}")
            self._log_dir.files.fsync_dir(self._directory)
            self._names_synced = created
            self._log_dir.sync_names()
        except OSError:
            self._directory_synced = self._epochs_synced = False
            raise

    def _sync_file(self, path: str) -> None:
        files = self._log_dir.files
        try:
            handle = OpenFile(files, files.open(path, READ))
        except FileNotFoundError:
            return
        files.fsync(handle.fd)
