"""The file system as a protocol, and the operating system's implementation of it.

The log reads and writes through `Files` only, so that a test can provide a slow, full or failing
file system. Every method may raise OSError. Paths are strings, because the calls are frequent and
`Path` objects would cost too much.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from typing import Protocol

from odradek.environment.allocation import allocate_ahead

Buffer = bytes | bytearray | memoryview

READ = os.O_RDONLY | os.O_CLOEXEC
READ_WRITE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
UPDATE = os.O_RDWR | os.O_CLOEXEC

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
"""Modes of new files and directories: only the user that runs the broker may read its data.
Existing files and directories keep their modes. The umask of the process is not changed, because a
broker may run inside another program.
"""

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


class Files(Protocol):
    """The file system calls of the log, and of connections that send file regions."""

    @property
    def nowait(self) -> int | None:
        """The `preadv` flag RWF_NOWAIT, or None if the system has none.

        With the flag, `preadv` raises BlockingIOError instead of waiting for the disk.
        """

    @property
    def sends_files(self) -> bool:
        """Whether `sendfile` can send from a file to a socket."""

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
    """The operating system's files. Frequent calls are the `os` functions without a wrapper."""

    __slots__ = ()

    nowait: int | None = getattr(os, "RWF_NOWAIT", None)
    sends_files = hasattr(os, "sendfile")
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
        return os.open(path, flags, FILE_MODE)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102 - a string path, on purpose

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


class PortableFiles(RealFiles):
    """The operating system's files without RWF_NOWAIT and `sendfile`, which some systems lack."""

    __slots__ = ()

    nowait = None
    sends_files = False


class OpenFile:
    """An open file descriptor, which is closed when the last reference to this object is dropped.

    A pool of open files holds one reference. Every region and every call in progress holds its own.
    Eviction, deletion and slow consumers therefore never close a descriptor that is still in use.
    """

    __slots__ = ("fd", "files")

    def __init__(self, files: Files, fd: int) -> None:
        self.files = files
        self.fd = fd

    def __del__(self) -> None:
        self.files.close(self.fd)


def write_all(files: Files, fd: int, data: Buffer, position: int) -> None:
    """Write all of `data`, in several writes if needed. After an OSError a part may be written."""
    view = memoryview(data)
    while len(view):
        written = files.pwrite(fd, view, position)
        view = view[written:]
        position += written


def read_file(files: Files, path: str) -> bytes:
    """Return the content of the file.

    Raises:
        FileNotFoundError: The file does not exist.
    """
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
    """Create one directory unless it exists."""
    with contextlib.suppress(FileExistsError):
        files.mkdir(path)


def make_directories(files: Files, path: str) -> None:
    """Create a directory and its missing parents. Each new directory has `DIRECTORY_MODE`.

    Each parent is synced as well, because an fsync of a directory does not cover its own name.
    Without that, a power cut could remove the directory along with all files that were synced in
    it.

    Raises:
        FileExistsError: A file of that name exists.
    """
    parent = os.path.dirname(path)  # noqa: PTH120
    try:
        files.mkdir(path)
    except FileNotFoundError:
        make_directories(files, parent)
        make_directory(files, path)
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112
            raise
        return
    files.fsync_dir(parent)


def create_file(files: Files, path: str) -> None:
    """Create an empty file unless it exists. A library that created it would use another mode."""
    files.close(files.open(path, READ_WRITE))


def write_new_file(files: Files, path: str, data: bytes, *, sync: bool = False) -> None:
    """Write a file that does not exist yet. A crash may leave it empty or torn."""
    handle = OpenFile(files, files.open(path, READ_WRITE | os.O_TRUNC))
    write_all(files, handle.fd, data, 0)
    if sync:
        files.fsync(handle.fd)


def write_file(files: Files, path: str, data: bytes, *, sync: bool) -> None:
    """Replace a file as a whole: write a temporary file beside it and rename that.

    After a crash the file has either its old or its new content. With `sync`, the file and its
    directory are synced. Without it a power cut may leave an empty or torn file, which every reader
    of such a file must recognise.
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


def unlink_if_exists(files: Files, path: str) -> bool:
    """Remove a file. Return whether it existed."""
    try:
        files.unlink(path)
    except FileNotFoundError:
        return False
    return True


def machine_boot_id() -> str:
    """Return an id that changes each time this machine's kernel starts; empty if it is unknown."""
    try:
        with open(BOOT_ID_FILE, encoding="ascii") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""
