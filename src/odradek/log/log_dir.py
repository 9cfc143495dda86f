"""One log directory: its files, the pools that its logs share, and whether it still works.

A failed fsync or an I/O error takes the directory offline for good: what the page cache holds can
no longer be trusted, so it is never tried again (KAFKA_STORAGE_ERROR from then on). A full disk
is no such failure: see `UnifiedLog.append_as_leader`.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Iterable

from odradek.environment.clock import Clock
from odradek.environment.files import Files
from odradek.errors import ErrorCode, KafkaError
from odradek.log.file_pool import FilePool
from odradek.log.segments.log_segment import IndexCache

DELETE_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
_logger = logging.getLogger(__name__)


class LogDir:
    """Shared by the logs below `path`; `offline` is read at each append and read."""

    def __init__(
        self,
        path: str,
        pool: FilePool,
        cache: IndexCache,
        clock: Clock,
        on_failure: Callable[[LogDir], None] | None = None,
        write_checkpoints: Callable[[LogDir], None] | None = None,
    ) -> None:
        self.path = path
        self.pool = pool
        self.cache = cache
        self.clock = clock
        self.offline = False
        self._removals: list[tuple[int, str]] = []
        self.torn_bytes_cut = 0
        """By the recovery of this start."""
        self.checkpoint_due = False
        self._on_failure = on_failure
        self._write_checkpoints = write_checkpoints
        self._lock = threading.Lock()
        # Not 0: directories that the run before created may not be on the disk.
        self._directories_created = 1
        self._directories_synced = 0
        self._names_lock = threading.Lock()

    @property
    def files(self) -> Files:
        return self.pool.files

    def fail(self, error: OSError, what: str) -> KafkaError:
        """Takes the directory offline (once, from any thread); the error to raise."""
        with self._lock:
            first, self.offline = not self.offline, True
        if first:
            _logger.error("log directory %s is offline: %s: %s", self.path, what, error)
            if self._on_failure is not None:
                self._on_failure(self)
        return self.error(what)

    def torn_tail_cut(self, size_bytes: int) -> None:
        """Counts what recovery has cut from a log."""
        self.torn_bytes_cut += size_bytes

    def directory_created(self) -> None:
        """A partition's directory was made: the first flush of its log syncs its name too."""
        self._directories_created += 1

    def sync_names(self) -> None:
        """Return when the names of all partition directories are on the disk. OSError may arise.

        Blocks: not for the owner of the logs. Logs that are flushed first at the same time share
        one fsync.
        """
        with self._names_lock:
            created = self._directories_created
            if created != self._directories_synced:
                self.files.fsync_dir(self.path)
                self._directories_synced = created

    def request_checkpoint(self) -> None:
        """`LogManager.maintain` writes the checkpoints the next time that it runs."""
        self.checkpoint_due = True

    def checkpoint_begins(self) -> None:
        """What is requested from now on is not in the checkpoints that are being written."""
        self.checkpoint_due = False

    def write_checkpoints(self) -> None:
        """Writes the directory's checkpoints and syncs them; OSError may arise. Without a manager
        there are none.
        """
        if self._write_checkpoints is not None:
            self._write_checkpoints(self)

    def remove_later(self, paths: Iterable[str], due_ms: int) -> None:
        """Files and directories, renamed already, that `remove_due` removes from `due_ms` on."""
        with self._lock:
            for path in paths:
                heapq.heappush(self._removals, (due_ms, path))

    def remove_due(self, now_ms: int) -> int:
        """Removes what is due, off the callers' paths; how many files and directories."""
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
            removed += 1

    def error(self, what: str = "the log directory is offline") -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path}: {what}")
