"""One offset checkpoint of a log directory, written by several threads (format: `checkpoints`).

A write replaces the file: the new content is written and synced under a unique name, and then
renamed. The lock is not held while a thread waits for the disk. Writes are numbered instead, and a
write is dropped if a newer one was renamed before it. A slow fsync therefore delays neither the
event loop nor the stop of the broker.

State after a crash: the old content or the new, and files with the names of unfinished writes
(``recovery-point-offset-checkpoint.7.tmp``), which `load` removes.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping

from odradek.environment.files import READ, Files, OpenFile, unlink_if_exists
from odradek.ids import TopicPartition
from odradek.log.state import checkpoints

Offsets = Mapping[TopicPartition, int]


class OffsetCheckpointFile:
    """Owner of the file and of its content in memory. All methods but `load` may run on any thread.

    Attributes:
        offsets: The entries that were last written and synced, without entries that `remove` has
            removed since.
    """

    def __init__(self, files: Files, directory: str, name: str) -> None:
        self._files = files
        self._directory = directory
        self._name = name
        self.path = f"{directory}/{name}"
        self.offsets: Offsets = {}
        self._lock = threading.Lock()
        self._latest: Offsets = {}
        self._last_write = 0
        self._renamed_write = 0
        self._renamed_offsets: Offsets = {}
        self._finished_write = 0
        self._closed = False

    def load(self, names: Iterable[str]) -> None:
        """Read the file, and remove the files of unfinished writes among `names` of the directory.

        Raises:
            CorruptCheckpoint: The file is incomplete. The offsets are empty then.
        """
        unfinished = re.compile(re.escape(self._name) + r"\.\d+\.tmp\Z")
        for name in filter(unfinished.match, names):
            unlink_if_exists(self._files, f"{self._directory}/{name}")
        self.offsets = self._latest = checkpoints.read_offsets(
            self._files, self.path, may_be_empty=self._name == checkpoints.CLEANER_OFFSET_FILE
        )

    def write(self, collect: Callable[[], Offsets]) -> None:
        """Write and sync the entries that `collect()` returns, unless the file already has them.

        Raises:
            OSError: The file keeps its old content.
        """
        self._replace(lambda _: collect(), sync=True)

    def update(self, topic_partition: TopicPartition, offset: int) -> None:
        """Write and sync one entry. Raise OSError as `write` does."""
        self._replace(lambda latest: {**latest, topic_partition: offset}, sync=True)

    def remove(self, deleted: set[TopicPartition]) -> None:
        """Remove entries without waiting for the disk. Raise OSError as `write` does."""

        def without(latest: Offsets) -> Offsets:
            return {each: offset for each, offset in latest.items() if each not in deleted}

        self._replace(without, sync=False)

    def close(self, collect: Callable[[], Offsets] | None = None) -> None:
        """Write for the last time, without waiting for the disk. Raise OSError as `write` does.

        Writes in progress on other threads are dropped. Without `collect` the entries stay.
        """
        change = (lambda latest: latest) if collect is None else (lambda _: collect())
        self._replace(change, sync=False, last=True)

    def sync(self) -> None:
        """Wait until the file is on the disk. The caller syncs the directory."""
        handle = OpenFile(self._files, self._files.open(self.path, READ))
        self._files.fsync(handle.fd)

    def _replace(
        self, change: Callable[[Offsets], Offsets], *, sync: bool, last: bool = False
    ) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = last
            offsets = change(self._latest)
            is_newest = self._finished_write == self._last_write
            if is_newest and offsets == self.offsets and not last:
                return
            self._latest = offsets
            self._last_write += 1
            number = self._last_write
        temporary = f"{self.path}.{number}.tmp"
        try:
            checkpoints.write_new_offsets(self._files, temporary, offsets, sync=sync)
            renamed = self._rename(temporary, number, offsets, last)
        except OSError:
            with contextlib.suppress(OSError):
                unlink_if_exists(self._files, temporary)
            raise
        if not renamed:
            unlink_if_exists(self._files, temporary)
        if sync:
            self._finish_sync(number)
        elif renamed and not last:
            with self._lock:
                self.offsets = change(self.offsets)

    def _finish_sync(self, number: int) -> None:
        """Return when a synced write, or a newer write that replaced it, is in the file."""
        with self._lock:
            in_file, offsets = self._renamed_write, self._renamed_offsets
        if in_file != number:  # the newer write contains this one, and may not be synced yet
            self.sync()
        self._files.fsync_dir(self._directory)
        with self._lock:
            if in_file == self._renamed_write > self._finished_write:
                self.offsets = offsets
                self._finished_write = in_file

    def _rename(self, temporary: str, number: int, offsets: Offsets, last: bool) -> bool:
        with self._lock:
            if number < self._renamed_write or (self._closed and not last):
                return False
            self._files.replace(temporary, self.path)
            self._renamed_write, self._renamed_offsets = number, offsets
            return True
