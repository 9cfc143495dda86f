"""The file system that one process of a simulation sees: `Files` on a `Disk`.

The view ends with its process. From then on every call raises `ProcessKilled`, except `close`,
which destructors call. `kill_after` lets the process die inside of one of its next changes, before
or after the change, or in the middle of a write.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from functools import partial

from odradek.environment.files import Buffer, DiskSpace
from tests.simulation.disk import PAGE_BYTES, Directory, Disk, Inode
from tests.simulation.event_loop import ProcessKilled, SimulatedClock
from tests.simulation.executors import Threads
from tests.simulation.scheduler import MILLISECOND

NOWAIT = 8
"""The `preadv` flag that never waits for the disk, as Linux numbers it."""
OPEN_FILES_MAX = 500
COLD_READ_US_MAX = 10 * MILLISECOND
DISK_BYTES = 1 << 40
Send = Callable[[int, Inode, int, int], int]


class _Lock:
    """A lock on a path of the disk. It ends with the process."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        if self._disk.locked.get(self._path) is self:
            del self._disk.locked[self._path]


class SimulatedFiles:
    """The files of one process; see the module.

    Attributes:
        kill_after: The process dies at this change of files, counted down to 0. None: it does not.
        blocked_loop: How many calls made the event loop wait for the disk.
        had_io_error: Whether a call of this process has failed with EIO.
    """

    nowait: int | None = NOWAIT
    sends_files = True
    open_files_max = OPEN_FILES_MAX

    def __init__(
        self,
        disk: Disk,
        threads: Threads,
        clock: SimulatedClock,
        boot_id: str,
        boot_notes: dict[str, str],
        on_kill: Callable[[], None],
    ) -> None:
        self.disk = disk
        self.boot_id = boot_id
        self.kill_after: int | None = None
        self.blocked_loop = 0
        self.had_io_error = False
        self.send_region: Send | None = None
        self._threads = threads
        self._clock = clock
        self._on_kill = on_kill
        self._boot_notes = boot_notes
        self._open: dict[int, Inode | Directory] = {}
        self._next_fd = 1000
        self._dead = False
        self._locks: list[_Lock] = []
        self._rng = disk.rng

    # -- memory that the next boot clears ----------------------------------------------------------

    def boot_note(self, name: str) -> str:
        return self._boot_notes.get(name, "")

    def write_boot_note(self, name: str, text: str) -> None:
        if not self._dead:
            self._boot_notes[name] = text

    def remove_boot_note(self, name: str) -> None:
        if not self._dead:
            self._boot_notes.pop(name, None)

    # -- the end of the process --------------------------------------------------------------------

    def kill(self) -> None:
        """The process is dead. Its locks end."""
        self._dead = True
        self._open.clear()
        for lock in self._locks:
            lock.release()

    def _alive(self) -> None:
        if self._dead:
            raise ProcessKilled

    def _change(self, torn: Callable[[], None] | None = None) -> bool:
        """Count a change of files. Return True if the process dies after it."""
        if self._dead:
            raise ProcessKilled
        if self.kill_after is None:
            return False
        self.kill_after -= 1
        if self.kill_after > 0:
            return False
        if self._rng.random() < 0.5:
            if torn is not None:
                torn()
            self._die()
        return True

    def _die(self) -> None:
        self._on_kill()
        raise ProcessKilled

    def _io_error(self) -> OSError:
        self.had_io_error = True
        return OSError(errno.EIO, "input/output error")

    def _wait(self, delay_us: int) -> None:
        """Wait for the disk. On a thread other events happen in the meantime."""
        if self._threads.running and asyncio._get_running_loop() is None:
            self._threads.wait(delay_us)
            self._alive()
        else:
            self.blocked_loop += 1

    # -- open files --------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        self._alive()
        if len(self._open) >= 2 * OPEN_FILES_MAX:
            raise OSError(errno.EMFILE, "too many open files", path)
        dies = bool(flags & (os.O_CREAT | os.O_TRUNC)) and self._change()
        node = self.disk.open(path, flags)
        if isinstance(node, Inode) and flags & os.O_CREAT and not node.data:
            node.modified_ms = self._clock.time_ms()
        if dies:
            self._die()
        self._next_fd += 1
        self._open[self._next_fd] = node
        return self._next_fd

    def close(self, fd: int) -> None:
        if not self._dead:
            del self._open[fd]

    @property
    def open_count(self) -> int:
        return len(self._open)

    def _inode(self, fd: int) -> Inode:
        self._alive()
        node = self._open.get(fd)
        if not isinstance(node, Inode):
            raise OSError(errno.EBADF, "bad file descriptor")
        return node

    # -- reading -----------------------------------------------------------------------------------

    def pread(self, fd: int, length: int, position: int) -> bytes:
        inode = self._inode(fd)
        self._read(inode, position, length)
        return bytes(inode.data[position : position + length])

    def preadv(
        self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, flags: int, /
    ) -> int:
        inode = self._inode(fd)
        length = sum(map(len, buffers))
        if flags & NOWAIT:
            self._probe(inode, position, length)
        else:
            self._read(inode, position, length)
        count = 0
        for buffer in buffers:
            piece = inode.data[position + count : position + count + len(buffer)]
            memoryview(buffer)[: len(piece)] = piece
            count += len(piece)
        return count

    def _probe(self, inode: Inode, position: int, length: int) -> None:
        if self.disk.evictions_rate and self._rng.random() < self.disk.evictions_rate:
            inode.evict()
        if inode.cold and not inode.cold.isdisjoint(_pages(position, length)):
            raise BlockingIOError(errno.EAGAIN, "not in the page cache")

    def _read(self, inode: Inode, position: int, length: int) -> None:
        if inode.unreadable:
            raise self._io_error()
        if inode.cold:
            pages = _pages(position, min(length, len(inode.data)))
            if not inode.cold.isdisjoint(pages):
                inode.cold.difference_update(pages)
                self._wait(self._rng.randrange(COLD_READ_US_MAX))

    def sendfile(self, out_fd: int, fd: int, position: int, length: int, /) -> int:
        inode = self._inode(fd)
        assert self.send_region is not None
        return self.send_region(out_fd, inode, position, min(length, len(inode.data) - position))

    def size(self, path: str) -> int:
        self._alive()
        return len(self.disk.file(path).data)

    def modified_ms(self, path: str) -> int:
        self._alive()
        return self.disk.file(path).modified_ms

    def listdir(self, path: str) -> list[str]:
        """Return the names in an order that depends on the seed: a file system has none."""
        self._alive()
        names = list(self.disk.directory(path).names)
        self._rng.shuffle(names)
        return names

    def is_dir(self, path: str) -> bool:
        self._alive()
        try:
            return isinstance(self.disk.find(path), Directory)
        except OSError:
            return False

    def space(self, path: str) -> DiskSpace:
        self._alive()
        left = self.disk.space_left
        return DiskSpace(DISK_BYTES, DISK_BYTES if left is None else left)

    # -- changes -----------------------------------------------------------------------------------

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        inode = self._inode(fd)

        def torn() -> None:
            inode.write(bytes(data[: self._rng.randrange(len(data) + 1)]), position)

        dies = self._change(torn)
        if self.disk.fail_writes:
            self.disk.fail_writes -= 1
            self.disk.faults_seen = True
            raise self._io_error()
        growth = position + len(data) - len(inode.data)
        written = len(data)
        if growth > 0 and self.disk.space_left is not None:
            written -= growth - self.disk.need_space(growth)
        inode.write(data if written == len(data) else bytes(data[:written]), position)
        inode.modified_ms = self._clock.time_ms()
        if dies:
            self._die()
        return written

    def ftruncate(self, fd: int, length: int) -> None:
        inode = self._inode(fd)
        dies = self._change()
        inode.truncate(length)
        inode.modified_ms = self._clock.time_ms()
        if dies:
            self._die()

    def allocate(self, fd: int, position: int, length: int) -> bool:
        """Reserve nothing: the content of a file does not show whether space was reserved."""
        self._inode(fd)
        return self._rng.random() < 0.5

    def fsync(self, fd: int) -> None:
        inode = self._inode(fd)
        self._sync(inode.sync, partial(inode.fail_sync, self._rng))

    def fsync_dir(self, path: str) -> None:
        self._alive()
        self._sync(self.disk.directory(path).sync)

    def sync(self, path: str) -> None:
        self._alive()
        self._sync(partial(self._sync_below, path), partial(self._fail_below, path))

    def _sync_below(self, path: str) -> None:
        directory = self.disk.directory(path)
        for name, found in directory.names.items():
            if isinstance(found, Directory):
                self._sync_below(f"{path}/{name}")
            else:
                found.sync()
        directory.sync()

    def _fail_below(self, path: str) -> None:
        for _, inode in self.disk.walk(path):
            inode.fail_sync(self._rng)

    def _sync(self, sync: Callable[[], None], fail: Callable[[], None] | None = None) -> None:
        """Sync, fail, or die. A failed fsync of a directory leaves the names as they were."""
        dies = self._change()
        if self.disk.fail_fsyncs:
            self.disk.fail_fsyncs -= 1
            self.disk.faults_seen = True
            if fail is not None:
                fail()
            raise self._io_error()
        sync()  # writes during the wait are not covered
        self._wait(self._rng.randrange(self.disk.sync_us_max))
        if dies:
            self._die()

    def replace(self, source: str, target: str) -> None:
        dies = self._change()
        self.disk.replace(source, target)
        if dies:
            self._die()

    def unlink(self, path: str) -> None:
        dies = self._change()
        self.disk.unlink(path)
        if dies:
            self._die()

    def mkdir(self, path: str) -> None:
        dies = self._change()
        self.disk.mkdir(path)
        if dies:
            self._die()

    def remove_tree(self, path: str) -> None:
        dies = self._change()
        self.disk.remove_tree(path)
        if dies:
            self._die()

    def copy_modified(self, source: str, target: str) -> None:
        dies = self._change()
        self.disk.file(target).modified_ms = self.disk.file(source).modified_ms
        if dies:
            self._die()

    def lock(self, path: str) -> _Lock:
        self._alive()
        owner = self.disk.locked.get(path)
        if owner is not None:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path)
        if not isinstance(self.disk.open(path, os.O_CREAT | os.O_RDWR), Inode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        lock = _Lock(self.disk, path)
        self.disk.locked[path] = lock
        self._locks.append(lock)
        return lock


def _pages(position: int, length: int) -> range:
    return range(position // PAGE_BYTES, (position + max(length, 1) - 1) // PAGE_BYTES + 1)
