"""One log directory: its files, the pools that its logs share, and whether it is online.

A failed fsync or an I/O error takes the directory offline permanently (KAFKA_STORAGE_ERROR from
then on). The operation is not repeated, because the content of the page cache can no longer be
trusted. A full disk is not such a failure: see `UnifiedLog.append_as_leader`.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakValueDictionary

from odradek.environment.clock import Clock
from odradek.environment.files import Files
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import TopicPartition
from odradek.log.file_pool import NO_DESCRIPTOR_ERRNOS, NO_SPACE_ERRNOS, FilePool
from odradek.log.segments.log_segment import IndexCache

DELETE_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
_logger = logging.getLogger(__name__)


class NewLog(Protocol):
    """The flusher of a log whose directory was created."""

    def sync_first_names(self) -> bool: ...


class LogDir:
    """The state that all logs below `path` share. `offline` is read at each append and read."""

    def __init__(
        self,
        path: str,
        pool: FilePool,
        cache: IndexCache,
        clock: Clock,
        on_failure: Callable[[LogDir], None] | None = None,
        write_checkpoints: Callable[[LogDir], None] | None = None,
        write_removals: Callable[[LogDir, TopicPartition], None] | None = None,
        on_full: Callable[[LogDir], None] | None = None,
        add_to_checkpoint: Callable[[LogDir, TopicPartition], None] | None = None,
    ) -> None:
        self.path = path
        self.pool = pool
        self.cache = cache
        self.clock = clock
        self.offline = False
        self.is_full = False
        """An append or a flush was refused (`append_refused`) since `space_freed`."""
        self._removals: list[tuple[int, str]] = []
        self.torn_bytes_cut = 0
        """Bytes that the recovery of this start has cut off."""
        # Requested checkpoints, and how many of the requests a written checkpoint covers.
        self._checkpoints_requested = 0
        self._checkpoints_covered = 0
        self.has_new_logs = False
        """Logs may have no entry in the checkpoint of recovery points."""
        self._new_logs: list[NewLog] = []
        self._on_new_log: Callable[[], object] | None = None
        self._may_have_lost_pages = False
        self._on_failure = on_failure
        self._on_lost_pages: list[Callable[[LogDir], None]] = []
        self._on_full = on_full
        self._write_checkpoints = write_checkpoints
        self._write_removals = write_removals
        self._add_to_checkpoint = add_to_checkpoint
        self._lock = threading.Lock()
        # Not 0, because directories that the previous run created may not be on the disk.
        self._directories_created = 1
        self._directories_synced = 0
        self._names_lock = threading.Lock()
        # Held by the thread that truncates the log of the partition. These are conditions, because
        # their locks are reentrant: a truncation may create the directory of its own log.
        self._truncations: WeakValueDictionary[TopicPartition, threading.Condition] = (
            WeakValueDictionary()
        )

    @property
    def files(self) -> Files:
        return self.pool.files

    def on_lost_pages(self, callback: Callable[[LogDir], None]) -> None:
        """Call `callback` at the first error that may have dropped data without an fsync.

        It runs on the thread that has got the error, before anything else follows from it.
        """
        self._on_lost_pages.append(callback)

    def fail(self, error: OSError, what: str) -> KafkaError:
        """Take the directory offline and return the error to raise.

        May be called from any thread. Only the first call has an effect, and the first one with an
        error that may have dropped pages of the page cache. A lack of space or descriptors has not.
        """
        loses_pages = error.errno not in NO_SPACE_ERRNOS and error.errno not in NO_DESCRIPTOR_ERRNOS
        with self._lock:
            first, self.offline = not self.offline, True
            loses_pages = loses_pages and not self._may_have_lost_pages
            self._may_have_lost_pages |= loses_pages
        if loses_pages:
            for callback in self._on_lost_pages:
                callback(self)
        if first:
            _logger.error(
                "log directory %s is offline: %s: %s. Check the disk and start the broker again.",
                self.path,
                what,
                error,
            )
            if self._on_failure is not None:
                self._on_failure(self)
        return self.error(what)

    def io_failed(self, error: OSError, what: str) -> KafkaError:
        """Return the error to raise. Take the directory offline, unless the call can be repeated.

        A lack of descriptors comes from opening a file, so no fsync or write has failed.
        """
        if error.errno in NO_DESCRIPTOR_ERRNOS:
            self.pool.make_room()
            return self.error(f"{what}: {error}. Raise the limit of open files")
        return self.fail(error, what)

    def append_refused(self, error: OSError, what: str) -> KafkaError:
        """Return the error of an append that a full disk or a lack of descriptors refuses.

        Reads continue, and each append tries again. The same applies to a truncation on a full
        disk.
        """
        if error.errno in NO_SPACE_ERRNOS:
            self._report_full()
        else:
            self.pool.make_room()
        return self.error(what)

    def flush_refused(self) -> None:
        """Report that flushes fail for lack of descriptors, as for a full disk.

        The disk works. The broker hands over its leaderships, because it cannot acknowledge.
        """
        self._report_full()

    def _report_full(self) -> None:
        if not self.is_full:
            self.is_full = True
            if self._on_full is not None:
                self._on_full(self)

    def space_freed(self) -> None:
        """Note that the disk has space again. The next failed append is reported again."""
        self.is_full = False

    def torn_tail_cut(self, size_bytes: int) -> None:
        """Add to the number of bytes that recovery has cut off."""
        self.torn_bytes_cut += size_bytes

    def prepare_directory(self, topic_partition: TopicPartition) -> None:
        """Return when a new directory of this partition may be created.

        The checkpoints must not have entries of a deleted partition of the same name. This waits
        for the disk if the partition was deleted a moment ago. It does not wait for the truncation
        of a deleted log, which may last for seconds. That truncation would take the files of the
        new log for its own.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR. A deleted log of this name is still being truncated.
                Nothing has changed, and the call can be repeated.
            OSError: The checkpoints could not be written.
        """
        truncation = self._truncation_of(topic_partition)
        if not truncation.acquire(blocking=False):
            raise self.error(f"a deleted log of {topic_partition} is still being truncated")
        truncation.release()
        if self._write_removals is not None:
            self._write_removals(self, topic_partition)

    @contextmanager
    def truncating(self, topic_partition: TopicPartition) -> Iterator[None]:
        """Let no other thread create the partition's directory while this thread cuts its log.

        The caller checks inside whether the log was closed: a directory of this name that existed
        before belongs to another log then.
        """
        with self._truncation_of(topic_partition):
            yield

    def _truncation_of(self, topic_partition: TopicPartition) -> threading.Condition:
        with self._lock:
            return self._truncations.setdefault(topic_partition, threading.Condition())

    def on_new_log(self, callback: Callable[[], object] | None) -> None:
        """Call `callback`, on any thread, when a partition directory was created."""
        self._on_new_log = callback

    def directory_created(self, log: NewLog) -> None:
        """Note a new partition directory. The first flush of its log syncs its name.

        Its checkpoint entry is written, and the names of its files are synced, when
        `LogManager.sync_new_logs` runs next. May be called from any thread.
        """
        with self._lock:
            self._directories_created += 1
            self._new_logs.append(log)
        self.has_new_logs = True
        if self._on_new_log is not None:
            self._on_new_log()

    def sync_new_names(self) -> None:
        """Sync the names of the files of new logs. Waits for the disk.

        A log whose first append has not ended stays in the list. A failure takes the directory
        offline, or the first roll of each remaining log syncs its name.
        """
        with self._lock:
            logs, self._new_logs = self._new_logs, []
        try:
            unfinished = [log for log in logs if not log.sync_first_names()]
        except KafkaError as error:
            _logger.warning("%s. The names of new files are synced later", error)
        else:
            with self._lock:
                self._new_logs += unfinished

    def clear_new_logs(self) -> None:
        """Clear `has_new_logs`. The write in progress does not cover later directories."""
        self.has_new_logs = False

    def add_to_checkpoint(self, topic_partition: TopicPartition) -> None:
        """Return when the checkpoint of recovery points has an entry for this partition.

        This waits for the disk if the directory of the partition was created a moment ago.

        Raises:
            OSError: The checkpoint could not be written.
        """
        if self._add_to_checkpoint is not None:
            self._add_to_checkpoint(self, topic_partition)

    def sync_names(self) -> None:
        """Return when the names of all partition directories are on the disk.

        Blocks, so the owner of the logs must not call it. First flushes of several logs at the same
        time share one fsync.

        Raises:
            OSError: The fsync failed.
        """
        with self._names_lock:
            created = self._directories_created
            if created != self._directories_synced:
                self.files.fsync_dir(self.path)
                self._directories_synced = created

    def request_checkpoint(self) -> int:
        """Have `LogManager.maintain` write the checkpoints when it runs next.

        Returns:
            The request, for `checkpoint_written`.
        """
        with self._lock:
            self._checkpoints_requested += 1
            return self._checkpoints_requested

    @property
    def checkpoint_due(self) -> bool:
        """Whether no complete write of the checkpoints has begun after the last request.

        A write in progress, or a failed one, covers no request: deleted files stay until then.
        """
        return self._checkpoints_covered < self._checkpoints_requested

    def checkpoint_written(self, request: int) -> None:
        """Note that the checkpoints are on the disk, with the state of `request` or later."""
        with self._lock:
            self._checkpoints_covered = max(self._checkpoints_covered, request)

    def write_checkpoints(self) -> None:
        """Write and sync the directory's checkpoints. Without a log manager this does nothing.

        Raises:
            OSError: The checkpoints could not be written.
        """
        if self._write_checkpoints is not None:
            self._write_checkpoints(self)

    def remove_later(self, paths: Iterable[str], due_ms: int) -> None:
        """Schedule renamed files and directories for removal by `remove_due` from `due_ms` on."""
        with self._lock:
            for path in paths:
                heapq.heappush(self._removals, (due_ms, path))

    def remove_due(self, now_ms: int) -> int:
        """Remove the files and directories that are due. Return their number.

        Raises:
            OSError: One of them cannot be removed. The next call tries again.
        """
        removed = 0
        while True:
            with self._lock:
                if not self._removals or self._removals[0][0] > now_ms:
                    return removed
                _, path = heapq.heappop(self._removals)
            try:
                if path.endswith(DELETE_DIRECTORY_SUFFIX):
                    self.files.remove_tree(path)
                else:
                    self.files.unlink(path)
            except FileNotFoundError:
                continue
            except OSError:
                self.remove_later([path], now_ms)
                raise
            removed += 1

    def error(self, what: str = "the log directory is offline") -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {what}")
