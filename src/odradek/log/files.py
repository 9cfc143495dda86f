"""The file system as the log sees it, and the pool that bounds how many files are open at once.

`Files` is what comes in by constructor: the real one here, a faulty one in the tests. All its
methods may raise OSError. Paths are strings: these calls are too frequent for Path objects.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from odradek.log.allocation import allocate_ahead

Buffer = bytes | bytearray | memoryview

READ = os.O_RDONLY | os.O_CLOEXEC
READ_WRITE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
UPDATE = os.O_RDWR | os.O_CLOEXEC


BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


class Files(Protocol):
    """The calls of the operating system that the log, and the connections that send its regions,
    make.
    """

    @property
    def nowait(self) -> int | None:
        """The flag with which `preadv` never waits for the disk (RWF_NOWAIT) but raises
        BlockingIOError, None where the system has none.
        """

    def preadv(
        self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, flags: int, /
    ) -> int: ...

    def sendfile(self, out_fd: int, fd: int, position: int, length: int, /) -> int: ...

    def open(self, path: str, flags: int) -> int: ...

    def close(self, fd: int) -> None: ...

    def pread(self, fd: int, length: int, position: int) -> bytes: ...

    def pwrite(self, fd: int, data: Buffer, position: int) -> int: ...

    def ftruncate(self, fd: int, length: int) -> None: ...

    def allocate(self, fd: int, position: int, length: int) -> bool: ...

    def fsync(self, fd: int) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def replace(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def mkdir(self, path: str) -> None: ...

    def listdir(self, path: str) -> list[str]: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def remove_tree(self, path: str) -> None: ...


class RealFiles:
    """The operating system itself: the hot calls are the `os` functions without a frame between."""

    __slots__ = ()

    nowait: int | None = getattr(os, "RWF_NOWAIT", None)
    preadv = staticmethod(os.preadv)
    sendfile = staticmethod(os.sendfile)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    ftruncate = staticmethod(os.ftruncate)
    allocate = staticmethod(allocate_ahead)
    fsync = staticmethod(os.fsync)
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    listdir = staticmethod(os.listdir)
    size = staticmethod(os.path.getsize)

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o644)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o755)  # noqa: PTH102 - a string path, on purpose

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, READ | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000  # noqa: PTH116

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)


class OpenFile:
    """An open descriptor, closed when the last reference to this object goes.

    The pool holds one reference; every region and every call in progress holds its own, so that
    eviction, deletion and a slow consumer never pull a descriptor away from each other.
    """

    __slots__ = ("fd", "files")

    def __init__(self, files: Files, fd: int) -> None:
        self.files = files
        self.fd = fd

    def __del__(self) -> None:
        self.files.close(self.fd)


class PooledFile:
    """A file that is opened when needed and may be closed by the pool meanwhile.

    `handle` is the open file or None; `used` is set by whoever uses the handle directly (the hot
    path), and gives the file a second chance when the pool looks for a victim.
    """

    __slots__ = ("_kept", "_pool", "flags", "handle", "path", "retired", "used")

    def __init__(self, pool: FilePool, path: str, flags: int) -> None:
        self._pool = pool
        self.path = path
        self.flags = flags
        self.handle: OpenFile | None = None
        self.used = False
        self.retired = False
        self._kept: OpenFile | None = None

    def open(self) -> OpenFile:
        """The open file, opened with `flags` if it is not; OSError when that fails."""
        self.used = True
        return self.handle or self._kept or self._pool.open(self)

    def keep(self) -> None:
        """Keeps the file open for as long as anybody has this object: another file is about to
        get its path.
        """
        self._kept = self.open()

    def keep_no_more(self) -> None:
        """Takes `keep` back: the path is this file's still."""
        self._kept = None

    def retire(self) -> None:
        """Lets go of the descriptor for good; whoever has the `OpenFile`, or opens it yet, keeps it
        to himself.
        """
        self.retired = True
        self._pool.release(self)


class FilePool:
    """At most `files_max` files open at once for all logs; those not used lately are closed first.

    Files that regions still hold after eviction come on top, and are bounded by the connections.
    Called from several threads; the hot path reads `PooledFile.handle` without coming here.
    """

    def __init__(self, files: Files, files_max: int) -> None:
        assert files_max > 0
        self.files = files
        self.files_max = files_max
        self._open: OrderedDict[PooledFile, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, file: PooledFile) -> OpenFile:
        with self._lock:
            if file.retired:
                return OpenFile(self.files, self.files.open(file.path, UPDATE))
            if file.handle is None:
                while len(self._open) >= self.files_max:
                    self._evict()
                file.handle = OpenFile(self.files, self.files.open(file.path, file.flags))
                self._open[file] = None
            return file.handle

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


def write_all(files: Files, fd: int, data: Buffer, position: int) -> None:
    """Writes all of `data`, however short the single writes are; OSError leaves a part written."""
    view = memoryview(data)
    while len(view):
        written = files.pwrite(fd, view, position)
        view = view[written:]
        position += written


def read_file(files: Files, path: str) -> bytes:
    """The whole file; FileNotFoundError when there is none."""
    fd = files.open(path, READ)
    try:
        chunks, position = [], 0
        while chunk := files.pread(fd, 1 << 20, position):
            chunks.append(chunk)
            position += len(chunk)
        return b"".join(chunks)
    finally:
        files.close(fd)


def make_directory(files: Files, path: str) -> None:
    """Makes one directory unless it is there."""
    try:
        files.mkdir(path)
    except FileExistsError:
        return


def write_new_file(files: Files, path: str, data: bytes) -> None:
    """Writes a file that is not there yet: a crash may leave it empty or torn."""
    handle = OpenFile(files, files.open(path, READ_WRITE | os.O_TRUNC))
    write_all(files, handle.fd, data, 0)


def write_file(files: Files, path: str, data: bytes, *, sync: bool) -> None:
    """Replaces the file whole: written beside it, synced if asked, renamed, directory synced.

    After a crash there is the old content or the new; without `sync` a power cut may leave an empty
    or torn file, which every reader of such a file must recognise.
    """
    temporary = path + ".tmp"
    fd = files.open(temporary, READ_WRITE | os.O_TRUNC)
    try:
        write_all(files, fd, data, 0)
        if sync:
            files.fsync(fd)
    finally:
        files.close(fd)
    files.replace(temporary, path)
    if sync:
        files.fsync_dir(os.path.dirname(path))  # noqa: PTH120


def unlink_if_there(files: Files, path: str) -> bool:
    """Removes a file; whether there was one."""
    try:
        files.unlink(path)
    except FileNotFoundError:
        return False
    return True


def machine_boot_id() -> str:
    """What differs each time that this machine's kernel starts; empty where nothing tells."""
    try:
        with open(BOOT_ID_FILE, encoding="ascii") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""
