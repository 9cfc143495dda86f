"""The pool that bounds how many files are open at the same time for all logs of a broker."""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict, deque

from odradek.environment.files import UPDATE, Files, OpenFile
from odradek.log.residency import NotResident

NO_SPACE_ERRNOS = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
NO_DESCRIPTOR_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})


class PooledFile:
    """A file that is opened when needed and may be closed by the pool meanwhile.

    `handle` is the open file or None; `used` is set by whoever uses the handle directly (the hot
    path), and gives the file a second chance when the pool looks for a victim.
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
        """The open file, opened with `flags` if it is not; OSError when that fails."""
        self.used = True
        return self.handle or self.kept or self._pool.open(self)

    def open_resident(self) -> OpenFile:
        """The open file. NotResident when it is not open: opening may wait for the disk."""
        self.used = True
        handle = self.handle or self.kept
        if handle is None:
            raise NotResident
        return handle

    def keep(self) -> None:
        """Keeps the file open for as long as anybody has this object: another file is about to
        get its path.
        """
        self.kept = self.open()

    def keep_no_more(self) -> None:
        """Takes `keep` back: the path is this file's still."""
        self.kept = None

    def retire(self) -> None:
        """Lets go of the descriptor for good; whoever has the `OpenFile`, or opens it yet, keeps it
        to himself.
        """
        self.retired = True
        self._pool.release(self)


class _CountedFile(OpenFile):
    """An open file that is counted for as long as its descriptor is open."""

    __slots__ = ("_counted",)

    def __init__(self, files: Files, fd: int, counted: deque[None]) -> None:
        super().__init__(files, fd)
        self._counted = counted
        counted.append(None)

    def __del__(self) -> None:
        super().__del__()
        self._counted.pop()


class FilePool:
    """At most `files_max` files open at once for all logs; those not used lately are closed first.

    Files that regions still hold after eviction come on top. `is_crowded` bounds them: a response
    then takes no second region.
    Called from several threads; the hot path reads `PooledFile.handle` without coming here.
    """

    def __init__(self, files: Files, files_max: int) -> None:
        assert files_max > 0
        self.files = files
        self.files_max = files_max
        self.descriptors_max = files_max + files_max // 2
        """Open files, those held by regions included, from which on `is_crowded`."""
        # Its length is the number. Appending to a deque is atomic, so that __del__ needs no lock.
        self._descriptors: deque[None] = deque()
        self._open: OrderedDict[PooledFile, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def descriptors(self) -> int:
        """Number of open files, those that only regions or calls in progress hold included."""
        return len(self._descriptors)

    @property
    def is_crowded(self) -> bool:
        """Whether regions hold so many files that few descriptors are left for connections."""
        return len(self._descriptors) >= self.descriptors_max

    def open(self, file: PooledFile) -> OpenFile:
        """The open file, which is in the pool unless it is retired. OSError when that fails.

        Opening a file that exists may wait for the disk, so the lock is not held in the meantime:
        the event loop takes it when it creates or deletes a log.
        """
        if file.flags == UPDATE:
            opened = self._opened(file.path, UPDATE)
            with self._lock:
                return self._add(file, opened)
        with self._lock:
            if file.retired:
                return self._opened(file.path, UPDATE)
            if file.handle is not None:
                return file.handle
            created = self._opened(file.path, file.flags)
            file.flags = UPDATE
            return self._add(file, created)

    def _opened(self, path: str, flags: int) -> OpenFile:
        return _CountedFile(self.files, self.files.open(path, flags), self._descriptors)

    def _add(self, file: PooledFile, opened: OpenFile) -> OpenFile:
        if file.retired or file.handle is not None:
            return file.handle or file.kept or opened
        while len(self._open) >= self.files_max:
            self._evict()
        file.handle = opened
        self._open[file] = None
        return opened

    def release(self, file: PooledFile) -> None:
        with self._lock:
            self._open.pop(file, None)
            file.handle = None

    def _evict(self) -> None:
        """Closes the file longest not used: those used since the last look go to the end once."""
        while True:
            victim, _ = self._open.popitem(last=False)
            if not victim.used:
                victim.handle = None
                return
            victim.used = False
            self._open[victim] = None
