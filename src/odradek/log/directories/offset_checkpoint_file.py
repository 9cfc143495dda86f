"""One offset checkpoint of a log directory, written by several threads (format: `checkpoints`).

A write replaces the file: the new content is written and synced under a unique name, and then
renamed. The lock is not held while a thread waits for the disk. Writes are numbered instead, and a
write is dropped if a newer one was renamed before it. A slow fsync therefore delays neither the
event loop nor the stop of the broker.

A removal of entries waits for no disk either. It changes the content in memory, and the next write
carries it out. `removes` reports whether an entry is still in the file.

The last write of a broker that stops is not synced at first. It has a name of its own
(``recovery-point-offset-checkpoint.closed``), so that a power cut leaves the synced content.

State after a crash: the old content or the new, and files with the names of unfinished writes
(``recovery-point-offset-checkpoint.7.tmp``), which `load` removes.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from itertools import chain

from odradek.environment.files import READ, Files, OpenFile, unlink_if_exists
from odradek.ids import TopicPartition
from odradek.log.state import checkpoints
from odradek.log.state.checkpoints import entry_name

Offsets = Mapping[str, int]
"""Offsets by `entry_name`.

The garbage collector does not visit a dictionary of strings and numbers. For one of 10,000
partitions it would take a millisecond in each generation, on the event loop.
"""

CLOSED_SUFFIX = ".closed"
"""Suffix of the unsynced file that a stop leaves; see the module."""

OWN_MARK = TopicPartition("odradek:", 0)
"""An entry of each file of recovery points that this code writes. No topic may have this name.

Kafka drops the entry when it writes the file. A log directory whose file lacks it was last used by
Kafka, whose logs may have gaps above the recovery point (`LogLoader`).
"""


class OffsetCheckpointFile:
    """Owner of the file and of its content in memory. All methods but `load` may run on any thread.

    Attributes:
        offsets: The entries that were last written and synced, without entries that `remove` has
            removed since.
        is_own: Whether the file of recovery points has `OWN_MARK`. It is not among `offsets`.
    """

    def __init__(self, files: Files, directory: str, name: str) -> None:
        self._files = files
        self._directory = directory
        self._name = name
        self.path = f"{directory}/{name}"
        self._closed_path = self.path + CLOSED_SUFFIX
        # `remove` changes these two dictionaries. A thread that writes has a copy.
        self.offsets: dict[str, int] = {}
        self._latest: dict[str, int] = {}
        self._lock = threading.Lock()
        self._last_write = 0
        self._renamed_write = 0
        self._renamed_offsets: Offsets = {}
        self._finished_write = 0
        # Removed entries that are still in the file, with the last write before the removal.
        self._removed: dict[str, int] = {}
        # The last write before the removal of an entry of 0. -1: the file has none to be removed.
        self._zeros_removed = -1
        self._closed = False
        self._is_marked = name == checkpoints.RECOVERY_POINT_FILE
        self.is_own = False

    def load(self, names: Iterable[str], *, use_closed: bool = False) -> dict[TopicPartition, int]:
        """Return the entries, and remove files of unfinished writes among `names` of the directory.

        Args:
            names: The names in the directory.
            use_closed: Whether the file of the last stop is complete in the page cache. It is
                synced and replaces the file. The caller syncs the directory.

        Raises:
            CorruptCheckpoint: The file is incomplete. The offsets are empty then.
            OSError: A file cannot be read or synced.
        """
        unfinished = re.compile(re.escape(self._name) + r"\.\d+\.tmp\Z")
        for name in filter(unfinished.match, names):
            unlink_if_exists(self._files, f"{self._directory}/{name}")
        if self._name + CLOSED_SUFFIX in names:
            if use_closed:
                self.sync_closed()
            else:
                unlink_if_exists(self._files, self._closed_path)
        offsets = checkpoints.read_offsets(
            self._files, self.path, may_be_empty=self._name == checkpoints.CLEANER_OFFSET_FILE
        )
        self.is_own = offsets.pop(OWN_MARK, None) is not None
        self.offsets = {entry_name(each): offset for each, offset in offsets.items()}
        self._latest = dict(self.offsets)
        return offsets

    def write(self, collect: Callable[[], Offsets]) -> None:
        """Write and sync the entries that `collect()` returns, unless the file already has them.

        The entries must not change afterwards, because they are not copied.

        Raises:
            OSError: The file keeps its old content.
        """
        self._replace(lambda _: collect())

    def update(
        self,
        topic_partition: TopicPartition,
        offset: int,
        is_void: Callable[[], bool] = lambda: False,
    ) -> None:
        """Write and sync one entry, unless it `is_void`. Raise OSError as `write` does."""

        name = entry_name(topic_partition)

        def updated(latest: Offsets) -> Offsets:
            return latest if is_void() else {**latest, name: offset}

        self._replace(updated)

    def add(self, topic_partition: TopicPartition) -> None:
        """Write and sync an entry of 0, unless there is one. Raise OSError as `write` does."""
        name = entry_name(topic_partition)
        if name not in self.offsets:
            self._replace(lambda latest: {name: 0, **latest})

    def lower(self, collect: Callable[[], Offsets]) -> None:
        """Write and sync the file with entries of at most the offsets that `collect()` returns.

        No entry is added. Raise OSError as `write` does.
        """

        def lowered(latest: Offsets) -> Offsets:
            limits = collect()
            return {each: min(offset, limits.get(each, offset)) for each, offset in latest.items()}

        self._replace(lowered)

    def remove(self, deleted: Iterable[TopicPartition]) -> None:
        """Remove entries from the next write on. This makes no system call, and copies nothing.

        An entry of 0 hides nothing of a new log with the same name, so `removes` does not report
        it. The next write drops it, because a copied directory of that name may have gaps.
        """
        with self._lock:
            for each in map(entry_name, deleted):
                offset = self._latest.pop(each, None)
                if offset:
                    self._removed[each] = self._last_write
                elif offset == 0 and self._is_marked:
                    self._zeros_removed = self._last_write
                self.offsets.pop(each, None)

    def removes(self, topic_partition: TopicPartition) -> bool:
        """Return whether a removed entry of this partition is still in the file."""
        return entry_name(topic_partition) in self._removed

    def offset_of(self, topic_partition: TopicPartition) -> int | None:
        """Return the offset of a partition that was last written and synced, or None."""
        return self.offsets.get(entry_name(topic_partition))

    def write_removals(self) -> None:
        """Write and sync the file without removed entries. Raise OSError as `write` does."""
        if self._removed:
            self._replace(lambda latest: latest)

    def close(self, collect: Callable[[], Offsets] | None = None) -> None:
        """Write for the last time, to the page cache only. Without `collect` the entries stay.

        Writes in progress on other threads are dropped.

        Raises:
            OSError: The entries are not written.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            offsets = dict(self._latest) if collect is None else collect()
        self._write_new(self._closed_path, offsets, sync=False)

    def sync_closed(self) -> None:
        """Replace the file by the file of `close`. The caller syncs the directory."""
        self._sync(self._closed_path)
        self._files.replace(self._closed_path, self.path)

    def _write_new(self, path: str, offsets: Offsets, *, sync: bool) -> None:
        marks = ((entry_name(OWN_MARK), 0),) if self._is_marked else ()
        entries = chain(marks, offsets.items())
        checkpoints.write_new_offsets(self._files, path, entries, sync=sync)

    def _sync(self, path: str) -> None:
        handle = OpenFile(self._files, self._files.open(path, READ))
        self._files.fsync(handle.fd)

    def _replace(self, change: Callable[[Offsets], Offsets]) -> None:
        with self._lock:
            if self._closed:
                return
            offsets = change(self._latest)
            if offsets is self._latest:
                offsets = dict(offsets)
            is_newest = self._finished_write == self._last_write
            is_written = offsets == self.offsets and (self.is_own or not self._is_marked)
            if is_newest and is_written and not self._removed and self._zeros_removed < 0:
                return
            self._latest = dict(offsets)
            self._last_write += 1
            number = self._last_write
            has_removals = bool(self._removed)
        temporary = f"{self.path}.{number}.tmp"
        try:
            self._write_new(temporary, offsets, sync=True)
            if has_removals:
                # The directories of these partitions were renamed. They must not come back without
                # their entries: compaction may have left gaps that only the entries explain.
                self._files.fsync_dir(self._directory)
            renamed = self._rename(temporary, number, offsets)
        except OSError:
            with contextlib.suppress(OSError):
                unlink_if_exists(self._files, temporary)
            raise
        if not renamed:
            unlink_if_exists(self._files, temporary)
        self._finish_sync()

    def _finish_sync(self) -> None:
        """Return when the newest renamed write, which contains this one, is in the file."""
        with self._lock:
            in_file, offsets = self._renamed_write, self._renamed_offsets
        self._files.fsync_dir(self._directory)
        with self._lock:
            if in_file == self._renamed_write > self._finished_write:
                self._removed = {each: n for each, n in self._removed.items() if n >= in_file}
                if self._zeros_removed < in_file:
                    self._zeros_removed = -1
                self.offsets = _without(offsets, self._removed)
                self.is_own = self._is_marked
                self._finished_write = in_file

    def _rename(self, temporary: str, number: int, offsets: Offsets) -> bool:
        with self._lock:
            if number < self._renamed_write or self._closed:
                return False
            self._files.replace(temporary, self.path)
            self._renamed_write, self._renamed_offsets = number, offsets
            return True


def _without(offsets: Offsets, deleted: Container[str]) -> dict[str, int]:
    return {each: offset for each, offset in offsets.items() if each not in deleted}
