"""A range of an open file that goes to a socket without passing through Python.

A region keeps its file open for as long as it is held: segments may be rolled, evicted from the
pool of open files, renamed or deleted meanwhile. CPython's own reference count is the count of
holders; the descriptor closes when the last one lets go. A file that was truncated under a region
gives fewer bytes than `len(region)`: whoever sends it closes the connection then.
"""

from __future__ import annotations

import errno
import os
from typing import ClassVar, Protocol

PROBE_STEP_BYTES = 131_072
"""Distance between the bytes probed for residency: Linux reads ahead, and evicts, in larger runs.
"""

_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", None)


class OpenFile(Protocol):
    """What a region needs of a file: its descriptor, valid while the object is referenced."""

    @property
    def fd(self) -> int: ...


class FileRegion:
    """`length` bytes of `file` from `position` on. `close` it when sent or dropped.

    `probes_residency` False makes `resident` answer as on a system without RWF_NOWAIT.
    """

    probes_residency: ClassVar[bool] = _RWF_NOWAIT is not None

    __slots__ = ("_file", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int) -> None:
        self._file: OpenFile | None = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        """The descriptor, valid until `close`; ValueError after that."""
        return self._held().fd

    def _held(self) -> OpenFile:
        """The open file: whoever works on another thread keeps it, lest `close` there closes it."""
        if self._file is None:
            raise ValueError("the region is closed")
        return self._file

    def read(self) -> bytes:
        """The bytes of the region; fewer when the file was cut short."""
        file, position, remaining = self._held(), self.position, self.length
        chunks = []
        while remaining > 0:
            chunk = os.pread(file.fd, remaining, position)
            if not chunk:
                break
            chunks.append(chunk)
            position += len(chunk)
            remaining -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def resident(self) -> int:
        """How many bytes from the start of the region are in the page cache, as far as can be
        told.

        Probes a byte at every `PROBE_STEP_BYTES` and the last one with RWF_NOWAIT. Where the
        system or the file system cannot tell, all of it.
        """
        if _RWF_NOWAIT is None or not self.length:
            return self.length
        file, last = self._held(), self.length - 1
        probe = bytearray(1)
        at = found = 0
        while _is_resident(file.fd, probe, self.position + at):
            if at == last:
                return self.length
            found, at = at, min(at + PROBE_STEP_BYTES, last)
        return found

    def close(self) -> None:
        """Lets go of the file; harmless when done twice."""
        self._file = None


def _is_resident(fd: int, probe: bytearray, position: int) -> bool:
    """Whether the byte at `position` can be read without waiting (True also past the end)."""
    try:
        os.preadv(fd, [probe], position, _RWF_NOWAIT or 0)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return False
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            return True
        raise
    return True
