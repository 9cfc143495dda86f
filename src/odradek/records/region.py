"""A range of an open file that is sent to a socket without passing through Python.

A region keeps its file open. In the meantime the segment may be rolled, evicted from the pool of
open files, renamed or deleted. CPython's reference count counts the users of the file, and the
descriptor is closed with the last reference. A file that was truncated under a region has fewer
bytes than `len(region)`. In that case the sender closes the connection.

Every read uses the file system object that opened the file, so a test can replace it.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Protocol

PROBE_STEP_BYTES = 1_048_576
"""Distance between the bytes that are probed for residency. In a usual fetch these are its first
and last byte. Linux reads ahead, and evicts, in runs. If pages between two probes are missing, the
event loop waits for one read of the disk.
"""

TOUCH_STEP_BYTES = 131_072
"""Number of bytes that `touch` reads with one call."""

_UNSUPPORTED_ERRNOS = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_PROBE = (bytearray(1),)
"""The buffer for probed bytes. Its content is not used."""


class RegionFiles(Protocol):
    """The part of a file system that a region uses.

    `nowait` is the flag for `preadv` that never waits for the disk (RWF_NOWAIT), or None.
    """

    @property
    def nowait(self) -> int | None: ...

    def pread(self, fd: int, length: int, position: int, /) -> bytes: ...

    def preadv(
        self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, flags: int, /
    ) -> int: ...

    def sendfile(self, out_fd: int, fd: int, position: int, length: int, /) -> int: ...


class RegionFile(Protocol):
    """An open file: its descriptor and the file system that opened it.

    The descriptor is valid while the object is referenced.
    """

    @property
    def fd(self) -> int: ...

    @property
    def files(self) -> RegionFiles: ...


class FileRegion:
    """`length` bytes of `file` from `position`. Call `close` when the region was sent or dropped.

    Attributes:
        warm: Number of bytes from the start of the region that a thread has just read.

    Args:
        begun: The first byte was just read, so `resident` need not probe it.
    """

    __slots__ = ("_begun", "_file", "length", "position", "warm")

    def __init__(self, file: RegionFile, position: int, length: int, begun: bool = False) -> None:
        self._file: RegionFile | None = file
        self.position = position
        self.length = length
        self.warm = 0
        self._begun = begun

    def __len__(self) -> int:
        return self.length

    def held(self) -> RegionFile:
        """Return the open file.

        Code on another thread keeps the reference, because `close` may run in between.

        Raises:
            ValueError: The region is closed.
        """
        if self._file is None:
            raise ValueError("the region is closed")
        return self._file

    def read(self) -> bytes:
        """Return the bytes of the region, or fewer if the file was truncated."""
        file, position, remaining = self.held(), self.position, self.length
        chunks = []
        while remaining > 0:
            chunk = file.files.pread(file.fd, remaining, position)
            if not chunk:
                break
            chunks.append(chunk)
            position += len(chunk)
            remaining -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def read_piece(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from `offset` of the region, or fewer if the file was truncated."""
        file = self.held()
        return file.files.pread(file.fd, count, self.position + offset)

    def sendfile(self, socket_fd: int, offset: int, count: int) -> int:
        """Send `count` bytes from `offset` to a socket. Return the number of bytes it accepted."""
        file = self._file
        if file is None:
            raise ValueError("the region is closed")
        return file.files.sendfile(socket_fd, file.fd, self.position + offset, count)

    def touch(self, offset: int, count: int) -> None:
        """Read `count` bytes from `offset`, so that they are in the page cache.

        Waits for the disk, so it runs on a thread.
        """
        file = self.held()
        scratch = memoryview(bytearray(min(count, TOUCH_STEP_BYTES)))
        position = self.position + offset
        end = position + count
        while position < end:
            got = file.files.preadv(file.fd, [scratch[: end - position]], position, 0)
            if got == 0:
                return  # the file was truncated: the sender detects it
            position += got
        if offset <= self.warm:
            self.warm = max(self.warm, offset + count)

    def resident(self) -> int:  # noqa: C901 - calls are what this path costs
        """Return how many bytes from the start of the region can be read without the disk.

        A byte at every `PROBE_STEP_BYTES` and the last one are probed with RWF_NOWAIT. Without
        RWF_NOWAIT the result is the number of bytes that `touch` has read.
        """
        length = self.length
        if self.warm >= length:
            return length
        file = self._file
        if file is None:
            raise ValueError("the region is closed")
        files = file.files
        nowait = files.nowait
        if nowait is None:
            return self.warm
        fd, position, last, at, found = file.fd, self.position, length - 1, 0, 0
        if self._begun:
            at = last if last < PROBE_STEP_BYTES else PROBE_STEP_BYTES
        try:
            while True:
                files.preadv(fd, _PROBE, position + at, nowait)  # after the file's end: no wait
                if at == last:
                    return length
                found, at = at, at + PROBE_STEP_BYTES
                if at > last:
                    at = last
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return found
            if error.errno in _UNSUPPORTED_ERRNOS:
                return self.warm
            raise

    def shorten(self, length: int) -> None:
        """Keep the first `length` bytes only."""
        assert 0 < length <= self.length
        self.length = length

    def close(self) -> None:
        """Drop the reference to the file. May be called twice."""
        self._file = None
