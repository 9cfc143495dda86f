"""A disk in memory, with the data that a power cut leaves.

Each page of a file is clean or written but not synced. Each directory has the names that processes
see, and the names that are durable. A power cut leaves every synced page, and any part of the
others: a page may have its new content, its old content, or the new content of some sectors only. A
file that grew may have any size between the synced and the current one, with zeros in lost pages.

The changes of a directory since its last sync are lost one by one, because a file system may write
metadata in any order. Two rules limit this. A rename happens completely or not at all. If a change
is lost, later changes of the same name are lost, too. If the name of a new directory is lost, all
files in it are lost, even synced ones.

A process that is killed leaves everything as it is, because the page cache belongs to the machine.
An fsync that fails is different. As on Linux, the pages are clean afterwards, and the next fsync
does not write them. Processes see their content until the page cache drops them. Here this happens
when the process ends.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

PAGE_BYTES = 4096
SECTOR_BYTES = 512
NAME_LOST_RATE = 0.5
PAGE_LOST_RATE = 0.7
"""Rate of the dirty pages that a failed fsync does not write."""


class Inode:
    """One file: the content in the page cache, and the content on the disk.

    Attributes:
        data: The content that processes see.
        durable: The content that survives a power cut.
        dirty: Numbers of the pages that differ from `durable`.
        failed: Numbers of the pages that an fsync has failed to write. They are clean.
        cold: Numbers of the pages that are not in the page cache.
        unreadable: Every read fails with EIO.
    """

    __slots__ = ("cold", "data", "dirty", "durable", "failed", "modified_ms", "unreadable")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()
        self.failed: set[int] = set()
        self.cold: set[int] = set()
        self.modified_ms = 0
        self.unreadable = False

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        end = position + len(data)
        if position > len(self.data):
            self._touch(len(self.data), position)
            self.data.extend(bytes(position - len(self.data)))
        self.data[position:end] = data
        self._touch(position, end)

    def truncate(self, length: int) -> None:
        size = len(self.data)
        if length < size:
            del self.data[length:]
            self.dirty = {page for page in self.dirty if page * PAGE_BYTES < length}
            self.cold = {page for page in self.cold if page * PAGE_BYTES < length}
            self.failed = {page for page in self.failed if page * PAGE_BYTES < length}
            self._touch(max(length - 1, 0), length)
        elif length > size:
            self.write(bytes(length - size), size)

    def _touch(self, start: int, end: int) -> None:
        """Mark the pages of the range as written."""
        first, last = start // PAGE_BYTES, (end - 1) // PAGE_BYTES
        if first >= last:
            if end > start:
                self.dirty.add(first)
                self.cold.discard(first)
                self.failed.discard(first)
            return
        pages = range(first, last + 1)
        self.dirty.update(pages)
        self.cold.difference_update(pages)
        self.failed.difference_update(pages)

    def sync(self) -> None:
        """Make the content of the dirty pages durable, and the size."""
        self._sync_pages(self.dirty)
        self.dirty.clear()

    def fail_sync(self, rng: random.Random) -> None:
        """Write some of the dirty pages. The others are clean, but not on the disk."""
        lost = {page for page in sorted(self.dirty) if rng.random() < PAGE_LOST_RATE}
        self._sync_pages(self.dirty - lost)
        self.failed |= lost
        self.dirty.clear()

    def _sync_pages(self, pages: Iterable[int]) -> None:
        data, durable = self.data, self.durable
        size = len(data)
        if len(durable) > size:
            del durable[size:]
        elif len(durable) < size:
            durable.extend(bytes(size - len(durable)))
        for page in pages:
            start = page * PAGE_BYTES
            durable[start : start + PAGE_BYTES] = data[start : start + PAGE_BYTES]

    @property
    def is_synced(self) -> bool:
        return not (self.dirty or self.failed) and len(self.data) == len(self.durable)

    def evict(self) -> None:
        """Drop the clean pages from the page cache."""
        self.cold = set(range((len(self.data) + PAGE_BYTES - 1) // PAGE_BYTES)) - self.dirty
        self.cold -= self.failed

    def drop_failed(self) -> bool:
        """Drop the pages of failed fsyncs from the page cache. Return whether there were any."""
        found = bool(self.failed)
        size = len(self.data)
        for page in self.failed:
            start = page * PAGE_BYTES
            end = min(start + PAGE_BYTES, size)
            left = self.durable[start:end]
            self.data[start:end] = left + bytes(end - start - len(left))
        self.cold |= self.failed
        self.failed.clear()
        return found

    def lose_unsynced(self, rng: random.Random) -> None:
        """Take the content that a power cut leaves. All of it is on the disk afterwards."""
        self.drop_failed()
        if not self.is_synced:
            self.data = _after_power_cut(self, rng)
            self.durable = bytearray(self.data)
            self.dirty.clear()
        self.evict()


def _after_power_cut(inode: Inode, rng: random.Random) -> bytearray:
    new, old = inode.data, inode.durable
    outcome = rng.choice(("all", "none", "prefix", "pages"))
    if outcome == "all":
        return bytearray(new)
    if outcome == "none":
        return bytearray(old)
    size = rng.choice((len(new), len(old), rng.randint(*sorted((len(new), len(old))))))
    left = bytearray(old[:size])
    left.extend(bytes(size - len(left)))
    pages = sorted(inode.dirty)
    kept = rng.randint(0, len(pages))
    for at, page in enumerate(pages):
        start = page * PAGE_BYTES
        survives = at < kept if outcome == "prefix" else rng.random() < 0.5
        count = PAGE_BYTES if survives else 0
        if at == kept or (outcome == "pages" and rng.random() < 0.2):
            count = rng.randrange(PAGE_BYTES // SECTOR_BYTES) * SECTOR_BYTES  # a torn page
        end = min(start + count, size)
        piece = new[start:end]
        if start < end:  # a page after the end of the file has zeros
            left[start:end] = piece + bytes(end - start - len(piece))
    return left


@dataclass(slots=True)
class NameChange:
    """A change of a directory that is not durable yet."""

    name: str
    """The created or removed name, or the new name of a rename."""
    node: Inode | Directory | None = None
    """The node that has the name now. None: the name was removed."""
    source: str | None = None
    """The old name of a rename."""

    def names(self) -> set[str]:
        return {self.name} if self.source is None else {self.name, self.source}

    def apply(self, names: dict[str, Inode | Directory]) -> None:
        if self.source is not None:
            names.pop(self.source, None)
        if self.node is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.node


@dataclass(slots=True, eq=False)
class Directory:
    """A directory: the names that processes see, the durable names, and the changes since then."""

    names: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)
    changes: list[NameChange] = field(default_factory=list)

    def change(self, change: NameChange) -> None:
        change.apply(self.names)
        self.changes.append(change)

    def sync(self) -> None:
        if self.changes:
            self.durable = dict(self.names)
            self.changes.clear()

    def lose_unsynced(self, rng: random.Random) -> int:
        """Take the names that a power cut leaves. Return how many changes were lost."""
        lost: set[str] = set()
        count = 0
        for change in self.changes:
            if lost & change.names() or rng.random() < NAME_LOST_RATE:
                lost |= change.names()
                count += 1
            else:
                change.apply(self.durable)
        self.names = dict(self.durable)
        self.changes.clear()
        return count


class Disk:
    """The disk of one machine. `SimulatedFiles` is the view of one process.

    Attributes:
        space_left: Bytes by which files may grow before ENOSPC. None: no limit.
        fail_fsyncs: How many of the next fsyncs fail with EIO.
        fail_writes: How many of the next writes fail with EIO.
        sync_us_max: The longest time that an fsync takes.
        names_lost: Changes of directories that power cuts have undone.
        faults_seen: A call has failed since this was reset.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.root = Directory()
        self.space_left: int | None = None
        self.fail_fsyncs = 0
        self.fail_writes = 0
        self.sync_us_max = 5_000
        self.evictions_rate = 0.0
        self.names_lost = 0
        self.faults_seen = False
        self.locked: dict[str, object] = {}
        """The owner of each locked path."""

    @property
    def is_failing(self) -> bool:
        """Whether the disk is full, or one of its next calls fails."""
        return self.space_left is not None or bool(self.fail_fsyncs or self.fail_writes)

    # -- paths -------------------------------------------------------------------------------------

    def find(self, path: str) -> Inode | Directory:
        node: Inode | Directory | None = self.root
        for part in path.split("/"):
            if part:
                if not isinstance(node, Directory):
                    raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
                node = node.names.get(part)
                if node is None:
                    raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
        return node

    def directory(self, path: str) -> Directory:
        node = self.find(path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def file(self, path: str) -> Inode:
        node = self.find(path)
        if not isinstance(node, Inode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def parent(self, path: str) -> tuple[Directory, str]:
        """Return the directory of a path, and the last part of the path."""
        directory, _, name = path.rpartition("/")
        return self.directory(directory), name

    # -- changes -----------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> Inode | Directory:
        directory, name = self.parent(path)
        node = directory.names.get(name)
        if node is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            self.need_space(0)
            node = Inode()
            directory.change(NameChange(name, node))
        elif flags & os.O_TRUNC and isinstance(node, Inode):
            node.truncate(0)
        return node

    def need_space(self, growth: int) -> int:
        """Return by how many of `growth` bytes a file may grow, at least 1 if it grows."""
        if self.space_left is None:
            return growth
        self.faults_seen = True
        if self.space_left <= 0:
            raise OSError(errno.ENOSPC, "no space left on device")
        growth = min(growth, self.space_left)
        self.space_left -= growth
        return growth

    def mkdir(self, path: str) -> None:
        parent, name = self.parent(path)
        if name in parent.names:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        self.need_space(0)
        parent.change(NameChange(name, Directory()))

    def replace(self, source: str, target: str) -> None:
        parent, name = self.parent(source)
        other, new_name = self.parent(target)
        assert parent is other, "renames between directories are not simulated"
        node = parent.names.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", source)
        parent.change(NameChange(new_name, node, name))

    def unlink(self, path: str) -> None:
        parent, name = self.parent(path)
        if not isinstance(parent.names.get(name), Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        parent.change(NameChange(name))

    def remove_tree(self, path: str) -> None:
        directory = self.directory(path)
        for name, node in list(directory.names.items()):
            if isinstance(node, Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                directory.change(NameChange(name))
        parent, name = self.parent(path)
        parent.change(NameChange(name))

    # -- faults ------------------------------------------------------------------------------------

    def power_cut(self) -> None:
        """Lose the data that is not synced; see the module. No process is running."""
        self._lose_unsynced(self.root)
        self.space_left = None
        self.fail_fsyncs = self.fail_writes = 0
        self.locked.clear()

    def _lose_unsynced(self, directory: Directory) -> None:
        self.names_lost += directory.lose_unsynced(self.rng)
        for node in directory.names.values():
            if isinstance(node, Directory):
                self._lose_unsynced(node)
            else:
                node.lose_unsynced(self.rng)

    def drop_failed_pages(self) -> list[str]:
        """Drop the pages of failed fsyncs from the page cache. Return the paths of their files."""
        return [path for path, inode in self.walk() if inode.drop_failed()]

    def walk(self, path: str = "") -> Iterator[tuple[str, Inode]]:
        """Yield the path and the file of every file below a directory."""
        for name, node in list(self.directory(path).names.items()):
            below = f"{path}/{name}"
            if isinstance(node, Directory):
                yield from self.walk(below)
            else:
                yield below, node
