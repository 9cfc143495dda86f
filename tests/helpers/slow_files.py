"""A file system whose page cache is controlled by the test.

All pages are warm until `evict`. After that, a page is cold until it is read or written. A call
that needs the disk waits at a gate, which the test holds and releases. On the broker's event loop
no call may wait for the disk. Such a call is recorded in `blocked` and continues immediately.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence

from odradek.environment.files import RealFiles

PAGE_BYTES = 4096
DEADLINE_S = 120
BROKER_THREAD = "odradek-broker"
"""The name of the thread on which `testing.Broker` runs its event loop."""


class SlowFiles(RealFiles):
    """The file system; see the module docstring. With `nowait=False` it has no RWF_NOWAIT."""

    def __init__(self, *, nowait: bool = True) -> None:
        self.nowait = os.RWF_NOWAIT if nowait else None
        self.blocked: list[str] = []
        """The calls that would have waited for the disk on the broker's event loop."""
        self.reached = threading.Event()
        """Set when a call waits, or would have to wait."""
        self._gate = threading.Event()
        self._gate.set()
        self._evicted = False
        self._warm: set[tuple[int, int]] = set()
        self._opened: set[int] = set()
        self._lock = threading.Lock()

    # -- interface of tests ------------------------------------------------------------------------

    def evict(self) -> None:
        """Empty the page cache and the cache of inodes."""
        with self._lock:
            self._evicted = True
            self._warm.clear()
            self._opened.clear()

    def hold(self) -> None:
        """Make every call wait that needs the disk."""
        self.reached.clear()
        self._gate.clear()

    def release(self) -> None:
        self._gate.set()

    # -- interface of the log ----------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        if self._evicted and not flags & os.O_CREAT:
            try:
                inode = os.stat(path).st_ino  # noqa: PTH116
            except FileNotFoundError:
                pass
            else:
                with self._lock:
                    cold = inode not in self._opened
                    self._opened.add(inode)
                if cold:
                    self._wait(f"open {path}")
        return super().open(path, flags)

    def pread(self, fd: int, length: int, position: int) -> bytes:  # type: ignore[override]
        self._read_pages(fd, length, position)
        return os.pread(fd, length, position)

    def preadv(  # type: ignore[override]
        self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, flags: int
    ) -> int:
        length = sum(map(len, buffers))
        if not flags:
            self._read_pages(fd, length, position)
            return os.preadv(fd, buffers, position)
        assert flags == os.RWF_NOWAIT
        cold = self._cold_pages(fd, length, position)
        if not cold:
            return os.preadv(fd, buffers, position)
        readable = cold[0] * PAGE_BYTES - position
        if readable <= 0:
            raise BlockingIOError(errno.EAGAIN, "would wait for the disk")
        return os.preadv(fd, [memoryview(buffers[0])[:readable]], position)

    def sendfile(self, out_fd: int, fd: int, position: int, length: int) -> int:  # type: ignore[override]
        self._read_pages(fd, length, position)
        return os.sendfile(out_fd, fd, position, length)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:  # type: ignore[override]
        written = os.pwrite(fd, data, position)
        self._make_warm(fd, written, position)
        return written

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self._wait("fsync")
        os.fsync(fd)

    def fsync_dir(self, path: str) -> None:
        self._wait(f"fsync {path}")
        super().fsync_dir(path)

    # -- pages -------------------------------------------------------------------------------------

    def _cold_pages(self, fd: int, length: int, position: int) -> list[int]:
        status = os.fstat(fd)
        end = min(position + length, status.st_size)
        if not self._evicted or end <= position:
            return []
        pages = range(position // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1)
        with self._lock:
            return [page for page in pages if (status.st_ino, page) not in self._warm]

    def _make_warm(self, fd: int, length: int, position: int) -> None:
        inode = os.fstat(fd).st_ino
        pages = range(position // PAGE_BYTES, (position + length) // PAGE_BYTES + 1)
        with self._lock:
            self._warm.update((inode, page) for page in pages)

    def _read_pages(self, fd: int, length: int, position: int) -> None:
        if self._cold_pages(fd, length, position):
            self._wait(f"read {length} bytes at {position}")
            self._make_warm(fd, length, position)

    def _wait(self, what: str) -> None:
        if threading.current_thread().name == BROKER_THREAD:
            self.blocked.append(what)
            self.reached.set()
            return
        if not self._gate.is_set():
            self.reached.set()
            assert self._gate.wait(DEADLINE_S), "the test did not release the disk"
