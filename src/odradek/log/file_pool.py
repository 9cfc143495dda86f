"""The pool that limits how many files are open at the same time for all logs of a broker."""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict, deque
from collections.abc import Callable

from odradek.environment.files import UPDATE, Files, OpenFile
from odradek.log.residency import NotResident

NO_SPACE_ERRNOS = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
NO_DESCRIPTOR_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})
EVICTED_SHARE = 4
"""One of so many files of the pool is closed when the process has no free descriptor."""
EVICTED_MAX = 200
"""Maximum number of files that one call closes. The event loop calls it, or waits for its lock."""
SECOND_CHANCES_MAX = 50
"""Used files that one eviction skips. Without this limit, and with thousands of used files, one
eviction would take 8 ms.
"""
GROWTH_S = 64
"""Seconds in which the pool may grow from no open file to its maximum again."""


class PooledFile:
    """A file that is opened when it is needed. The pool may close it between uses.

    `handle` is the open file or None. Code that uses the handle directly (the hot path) sets
    `used`, which gives the file a second chance when the pool evicts files.
    """

    __slots__ = ("_pool", "flags", "handle", "kept", "path", "retired", "used")

    def __init__(self, pool: FilePool, path: str, flags: int) -> None:
        self._pool = pool
        self.path = path
        self.flags = flags
        self.handle: OpenFile | None = None
        self.used = False
        self.retired = False
        self.kept: OpenFile | None = None

    def open(self) -> OpenFile:
        """Return the open file, and open it with `flags` first if needed.

        Raises:
            OSError: The file cannot be opened.
        """
        self.used = True
        return self.handle or self.kept or self._pool.open(self)

    def open_resident(self) -> OpenFile:
        """Return the open file.

        Raises:
            NotResident: The file is not open, and opening it may wait for the disk.
        """
        self.used = True
        handle = self.handle or self.kept
        if handle is None:
            raise NotResident
        return handle

    def keep(self) -> None:
        """Keep the file open as long as this object is referenced.

        Called before another file gets its path.
        """
        self.kept = self.open()

    def undo_keep(self) -> None:
        """Undo `keep`: the path still belongs to this file."""
        self.kept = None

    def retire(self) -> None:
        """Remove the file from the pool permanently.

        Existing and later references to its `OpenFile` keep it open.
        """
        self.retired = True
        self._pool.release(self)


class _CountedFile(OpenFile):
    """An open file that is counted as long as its descriptor is open."""

    __slots__ = ("_counted",)

    def __init__(self, files: Files, fd: int, counted: deque[None]) -> None:
        super().__init__(files, fd)
        self._counted = counted
        counted.append(None)

    def __del__(self) -> None:
        super().__del__()
        self._counted.pop()


class FilePool:
    """A pool of at most `files_max` open files for all logs. It evicts the least recently used.

    Regions may hold further files open after their eviction. `is_crowded` limits these: a response
    then has only one region.
    The pool is used by several threads. The hot path reads `PooledFile.handle` without a call.
    """

    def __init__(self, files: Files, files_max: int) -> None:
        assert files_max > 0
        self.files = files
        self.files_max = files_max
        self._open_max = files_max
        self.descriptors_max = files_max + files_max // 2
        """Number of open files, including files held by regions, from which `is_crowded` is
        True.
        """
        # Its length is the count. Appending to a deque is atomic, so `__del__` needs no lock.
        self._descriptors: deque[None] = deque()
        self._open: OrderedDict[PooledFile, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_crowded(self) -> bool:
        """Whether regions hold so many files that few descriptors are left for connections."""
        return len(self._descriptors) >= self.descriptors_max

    def open(self, file: PooledFile) -> OpenFile:
        """Return the open file. It is in the pool unless it is retired.

        Opening an existing file may wait for the disk. The lock is not held during that time,
        because the event loop takes it when it creates or deletes a log.

        Raises:
            OSError: The file cannot be opened.
        """
        if file.flags == UPDATE:
            opened = self._opened(file.path, UPDATE, self.make_room)
            with self._lock:
                return self._add(file, opened)
        with self._lock:
            if file.retired:
                return self._opened(file.path, UPDATE, self._evict_quarter)
            if file.handle is not None:
                return file.handle
            created = self._opened(file.path, file.flags, self._evict_quarter)
            file.flags = UPDATE
            return self._add(file, created)

    def _opened(self, path: str, flags: int, make_room: Callable[[], None]) -> OpenFile:
        try:
            fd = self.files.open(path, flags)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR_ERRNOS:
                raise
            make_room()
            fd = self.files.open(path, flags)
        return _CountedFile(self.files, fd, self._descriptors)

    def make_room(self) -> None:
        """Close the least recently used quarter of the files: the process has no free descriptor.

        A large pool closes at most `EVICTED_MAX` files, because the call holds the lock. A file
        that a region or a call holds is closed later.
        """
        with self._lock:
            self._evict_quarter()

    def grow(self) -> None:
        """Permit more open files again after `make_room`. Called about every second."""
        with self._lock:
            self._open_max = min(self._open_max + -(-self.files_max // GROWTH_S), self.files_max)

    def _evict_quarter(self) -> None:
        """Close files, and keep the pool at that size: other files need the descriptors."""
        for _ in range(min(-(-len(self._open) // EVICTED_SHARE), EVICTED_MAX)):
            self._evict()
        self._open_max = max(len(self._open), 1)

    def _add(self, file: PooledFile, opened: OpenFile) -> OpenFile:
        if file.retired or file.handle is not None:
            return file.handle or file.kept or opened
        while len(self._open) >= self._open_max:
            self._evict()
        file.handle = opened
        self._open[file] = None
        return opened

    def release(self, file: PooledFile) -> None:
        with self._lock:
            self._open.pop(file, None)
            file.handle = None

    def _evict(self) -> None:
        """Close the least recently used file.

        A file that was used since the last pass is skipped once, but at most `SECOND_CHANCES_MAX`
        files are skipped in a row.
        """
        for _ in range(SECOND_CHANCES_MAX):
            victim, _ = self._open.popitem(last=False)
            if not victim.used:
                break
            victim.used = False
            self._open[victim] = None
        else:
            victim, _ = self._open.popitem(last=False)
        victim.handle = None
