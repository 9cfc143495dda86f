"""The file system as a protocol, and the operating system's implementation of it.

The broker uses files through `Files` only, so that a test can provide a slow, full or failing file
system, and a simulator one in memory. Every method may raise OSError. Paths are strings, because
the calls are frequent and `Path` objects would cost too much.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from odradek.environment.allocation import allocate_ahead
from odradek.environment.file_system_sync import sync_file_system

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
BOOT_NOTES = "/dev/shm"  # noqa: S108 - the owner of a note is checked
BOOT_NOTE_BYTES_MAX = 256


OPEN_FILES_MIN = 32
OPEN_FILES_MAX = 16_384

_LACK_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_locked_here: set[str] = set()
"""Files locked by this process. A POSIX lock does not exclude other uses in its process."""


class DiskSpace(NamedTuple):
    """Size of a file system, and the bytes that this user may still write."""

    total_bytes: int
    usable_bytes: int


class FileLock(Protocol):
    """A lock on a file, held until `release`."""

    def release(self) -> None:
        """Release the lock. May be called again, and from any thread."""


class Files(Protocol):
    """The file system calls of the log, and of connections that send file regions.

    A descriptor is a number that only the same object understands.
    """

    @property
    def nowait(self) -> int | None:
        """The `preadv` flag RWF_NOWAIT, or None if the system has none.

        With the flag, `preadv` raises BlockingIOError instead of waiting for the disk.
        """

    @property
    def sends_files(self) -> bool:
        """Whether `sendfile` can send from a file to a socket."""

    @property
    def open_files_max(self) -> int:
        """How many files the logs may hold open at the same time."""

    @property
    def boot_id(self) -> str:
        """An id that changes each time the machine boots; empty if it is unknown.

        While it is the same, data that was written without fsync is still in the page cache.
        """

    def boot_note(self, name: str) -> str:
        """Return a text of `write_boot_note` since the last boot; empty if there is none."""

    def write_boot_note(self, name: str, text: str) -> None:
        """Write a short text to memory that the next boot clears. It survives the process.

        Raises:
            OSError: There is no such memory, or a note of this name exists.
        """

    def remove_boot_note(self, name: str) -> None:
        """Remove a note, if it exists. May be called from any thread."""

    def preadv(
        self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, flags: int, /
    ) -> int: ...

    def sendfile(self, out_fd: int, fd: int, position: int, length: int, /) -> int:
        """Send from a file to the socket `out_fd` (`StreamSocket.fileno`).

        Returns:
            The number of bytes that the socket accepted. 0: the file ends at `position`.

        Raises:
            BlockingIOError: The socket is full.
        """

    def open(self, path: str, flags: int) -> int: ...

    def close(self, fd: int) -> None: ...

    def pread(self, fd: int, length: int, position: int) -> bytes: ...

    def pwrite(self, fd: int, data: Buffer, position: int) -> int: ...

    def ftruncate(self, fd: int, length: int) -> None: ...

    def allocate(self, fd: int, position: int, length: int) -> bool: ...

    def fsync(self, fd: int) -> None:
        """Sync a file. A lack of space is EIO here, as in `fsync_dir` and `sync` (`sync_once`).

        Raises:
            FsyncLacksSpace: The disk lacks space.
        """

    def fsync_dir(self, path: str) -> None: ...

    def sync(self, path: str) -> None:
        """Return when all files and names of the file system of directory `path` are on the disk.

        Cheaper than `fsync` for many files. It also writes the data of other programs.
        """

    def replace(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def mkdir(self, path: str) -> None: ...

    def listdir(self, path: str) -> list[str]: ...

    def size(self, path: str) -> int: ...

    def is_dir(self, path: str) -> bool: ...

    def modified_ms(self, path: str) -> int: ...

    def copy_modified(self, source: str, target: str) -> None:
        """Copy the time of the last change from `source` to `target`."""

    def remove_tree(self, path: str) -> None: ...

    def lock(self, path: str) -> FileLock:
        """Create the file unless it exists, and lock it against every other broker.

        Raises:
            BlockingIOError: A broker of this or another process holds the lock.
        """

    def space(self, path: str) -> DiskSpace:
        """Return the space of the file system that has the file or directory."""


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
    replace = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    listdir = staticmethod(os.listdir)
    size = staticmethod(os.path.getsize)
    is_dir = staticmethod(os.path.isdir)

    @property
    def open_files_max(self) -> int:
        """Half of the process's limit of open files. The other half is for connections."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return OPEN_FILES_MAX
        return max(OPEN_FILES_MIN, min(soft // 2, OPEN_FILES_MAX))

    @property
    def boot_id(self) -> str:
        return machine_boot_id()

    def boot_note(self, name: str) -> str:
        try:
            fd = os.open(f"{BOOT_NOTES}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            is_own = os.fstat(fd).st_uid == os.geteuid()  # each user may write to the directory
            return os.read(fd, BOOT_NOTE_BYTES_MAX).decode("ascii", "replace") if is_own else ""
        finally:
            os.close(fd)

    def write_boot_note(self, name: str, text: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(f"{BOOT_NOTES}/{name}", flags, FILE_MODE)
        try:
            os.write(fd, text.encode("ascii"))
        finally:
            os.close(fd)

    def remove_boot_note(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{BOOT_NOTES}/{name}")  # noqa: PTH108

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags, FILE_MODE)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, DIRECTORY_MODE)  # noqa: PTH102 - a string path, on purpose

    def fsync(self, fd: int) -> None:
        sync_once(os.fsync, fd)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, READ | os.O_DIRECTORY)
        try:
            sync_once(os.fsync, fd)
        finally:
            os.close(fd)

    def sync(self, path: str) -> None:
        fd = os.open(path, READ | os.O_DIRECTORY)
        try:
            sync_once(sync_file_system, fd)
        finally:
            os.close(fd)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000  # noqa: PTH116

    def copy_modified(self, source: str, target: str) -> None:
        modified_ns = os.stat(source).st_mtime_ns  # noqa: PTH116
        os.utime(target, ns=(modified_ns, modified_ns))

    def remove_tree(self, path: str) -> None:
        # The import of `shutil`, which has such a function, takes 0.5 MiB and 3 ms.
        for _, directories, files, fd in os.fwalk(path, topdown=False):
            for name in files:
                os.unlink(name, dir_fd=fd)
            for name in directories:
                try:
                    os.rmdir(name, dir_fd=fd)
                except NotADirectoryError:  # a link to a directory
                    os.unlink(name, dir_fd=fd)
        os.rmdir(path)  # noqa: PTH106

    def lock(self, path: str) -> FileLock:
        return _PosixLock(self, path)

    def space(self, path: str) -> DiskSpace:
        found = os.statvfs(path)
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


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


class _PosixLock:
    """A POSIX lock, which Kafka's brokers respect. The process releases it at its end."""

    def __init__(self, files: RealFiles, path: str) -> None:
        self._path = os.path.realpath(path)
        if self._path in _locked_here:
            raise BlockingIOError(errno.EAGAIN, "locked in this process", path)
        handle = OpenFile(files, files.open(path, READ_WRITE))
        try:
            fcntl.lockf(handle.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except PermissionError as error:  # POSIX permits EACCES for a lock that is held elsewhere
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from error
        self._handle: OpenFile | None = handle
        _locked_here.add(self._path)

    def release(self) -> None:
        if self._handle is not None:
            self._handle = None
            _locked_here.discard(self._path)


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


class FsyncLacksSpace(OSError):
    """An fsync has reported a lack of space. `errno` is EIO: it must not be repeated."""


def sync_new_file(files: Files, fd: int) -> None:
    """Sync a file that nothing uses yet. The caller may write it again after a lack of space.

    Raises:
        OSError: ENOSPC as well, because no earlier data is in the file.
    """
    try:
        files.fsync(fd)
    except FsyncLacksSpace as error:
        raise OSError(errno.ENOSPC, str(error)) from error


def sync_once(sync: Callable[[int], None], fd: int) -> None:
    """Call `sync`. Raise EIO if the disk lacks space, which an fsync must not be repeated for.

    Thin-provisioned volumes and quotas of NFS report a lack of space at the fsync. The kernel may
    then drop the dirty pages, and a second fsync succeeds without them. A lack of space in a write
    or a rename is different: callers repeat these calls.
    """
    try:
        sync(fd)
    except OSError as error:
        if error.errno in _LACK_OF_SPACE:
            raise FsyncLacksSpace(errno.EIO, f"fsync failed: {error.strerror}") from error
        raise


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
        if not files.is_dir(path):
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
        sync_new_file(files, handle.fd)


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
            sync_new_file(files, fd)
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
