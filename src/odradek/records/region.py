"""A range of an open file that goes to a socket without passing through Python.

A region keeps its file open. In the meantime the segment may be rolled, evicted from the pool of
open files, renamed or deleted. CPython's reference count is the count of holders. The descriptor is
closed with the last reference. A file that was truncated under a region has fewer bytes than
`len(region)`. The sender closes the connection then.

Every read goes through the file system that opened the file, which a test may replace.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Protocol

PROBE_STEP_BYTES = 1_048_576
"""Distance between the bytes probed for residency, a usual fetch: its first and last byte. Linux
reads ahead, and evicts, in runs; a hole between two probes costs the loop a disk's read of it.
"""

TOUCH_STEP_BYTES = 131_072
"""How much `touch` reads with one call."""

_CANNOT_TELL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_PROBE = (bytearray(1),)
"""Where probed bytes go; nobody looks at them."""


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
    """An open file: its descriptor, valid while the object is referenced, and the file system that
    opened it.
    """

    @property
    def fd(self) -> int: ...

    @property
    def files(self) -> RegionFiles: ...


class FileRegion:
    """`length` bytes of `file` from `position` on. `close` it when sent or dropped.

    `begun`: its first byte was just read, so `resident` need not probe it. `warm`: bytes from its
    start that a thread has just read.
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

    def _held(self) -> RegionFile:
        """The open file. Code on another thread keeps it, because `close` may run in between.
        ValueError when the region is closed.
        """
        if self._file is None:
            raise ValueError("the region is closed")
        return self._file

    def read(self) -> bytes:
        """The bytes of the region; fewer when the file was cut short."""
        file, position, remaining = self._held(), self.position, self.length
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
        """`count` bytes from `offset` of the region on; fewer when the file was cut short."""
        file = self._held()
        return file.files.pread(file.fd, count, self.position + offset)

    def sendfile(self, socket_fd: int, offset: int, count: int) -> int:
        """Send `count` bytes from `offset` on to a socket; return how many it took."""
        file = self._file
        if file is None:
            raise ValueError("the region is closed")
        return file.files.sendfile(socket_fd, file.fd, self.position + offset, count)

    def touch(self, offset: int, count: int) -> None:
        """Read `count` bytes from `offset` on, so that they are in the page cache. Waits for the
        disk: for a thread.
        """
        file = self._held()
        scratch = memoryview(bytearray(min(count, TOUCH_STEP_BYTES)))
        position = self.position + offset
        end = position + count
        while position < end:
            got = file.files.preadv(file.fd, [scratch[: end - position]], position, 0)
            if got == 0:
                return  # cut short: the sender finds out
            position += got
        if offset <= self.warm:
            self.warm = max(self.warm, offset + count)

    def resident(self) -> int:  # noqa: C901 - calls are what this path costs
        """How many bytes from the start of the region can be read without waiting for the disk.

        Probes a byte at every `PROBE_STEP_BYTES` and the last one with RWF_NOWAIT. Without
        RWF_NOWAIT: the bytes that `touch` has read.
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
                files.preadv(fd, _PROBE, position + at, nowait)  # nothing past the end: no wait
                if at == last:
                    return length
                found, at = at, at + PROBE_STEP_BYTES
                if at > last:
                    at = last
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return found
            if error.errno in _CANNOT_TELL:
                return self.warm
            raise

    def close(self) -> None:
        """Lets go of the file; harmless when done twice."""
        self._file = None
