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

PROBE_STEP_BYTES = 1_048_576
"""Distance between the bytes probed for residency, a usual fetch: its first and last byte. Linux
reads ahead, and evicts, in runs; a hole between two probes costs the loop a disk's read of it.
"""

_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", None)
_CANNOT_TELL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_PROBE = (bytearray(1),)
"""Where probed bytes go; nobody looks at them."""


class OpenFile(Protocol):
    """What a region needs of a file: its descriptor, valid while the object is referenced."""

    @property
    def fd(self) -> int: ...


class FileRegion:
    """`length` bytes of `file` from `position` on. `close` it when sent or dropped.

    `begun`: its first byte was just read, so `resident` need not probe it.
    `probes_residency` False makes `resident` answer as on a system without RWF_NOWAIT.
    """

    probes_residency: ClassVar[bool] = _RWF_NOWAIT is not None

    __slots__ = ("_begun", "_file", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int, begun: bool = False) -> None:
        self._file: OpenFile | None = file
        self.position = position
        self.length = length
        self._begun = begun

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        """The descriptor, valid until `close`; ValueError after that."""
        file = self._file
        return self._held().fd if file is None else file.fd

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
        length = self.length
        if _RWF_NOWAIT is None or not length or not self.probes_residency:
            return length
        fd, position, last, at, found = self.fileno(), self.position, length - 1, 0, 0
        if self._begun:
            at = last if last < PROBE_STEP_BYTES else PROBE_STEP_BYTES
        try:
            while True:
                os.preadv(fd, _PROBE, position + at, _RWF_NOWAIT)  # nothing past the end: no wait
                if at == last:
                    return length
                found, at = at, at + PROBE_STEP_BYTES
                if at > last:
                    at = last
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return found
            if error.errno in _CANNOT_TELL:
                return length
            raise

    def close(self) -> None:
        """Lets go of the file; harmless when done twice."""
        self._file = None
