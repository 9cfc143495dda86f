"""Preallocation of disk space for a file that grows by appends (Linux `fallocate`).

When a file on ext4 grows, the file system allocates each page of a write separately. That is more
than half of the cost of an append of 128 KiB. The same write into space that was reserved in one
piece costs a third less CPU. The size of the file does not change, because the reserved space lies
after its end and is never read. Truncating the file to its own size releases the space:
`LogSegment` does so when it is rolled or closed, and recovery does so after a SIGKILL of the
broker.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

FREE_BYTES_MIN = 4 * 1_073_741_824
"""Nothing is reserved when the file system has fewer free bytes than this."""

GAINING_TYPES = frozenset({"ext4"})
"""Types of file systems on which preallocation was measured to be faster."""

_FALLOC_FL_KEEP_SIZE = 1
_MOUNTS = Path("/proc/self/mountinfo")


def allocate_ahead(fd: int, position: int, length: int) -> bool:
    """Reserve `length` bytes from `position` of the open file. Return False if none were reserved.

    Nothing is reserved on file systems that do not gain, and when free space is below
    `FREE_BYTES_MIN`.
    """
    if not _gains(os.fstat(fd).st_dev):
        return False
    room = os.fstatvfs(fd)
    if room.f_bavail * room.f_frsize < FREE_BYTES_MIN + length:
        return False
    fallocate = _fallocate()
    return fallocate is not None and fallocate(fd, _FALLOC_FL_KEEP_SIZE, position, length) == 0


@functools.cache
def _gains(device: int) -> bool:
    """Return whether the file system with that device number has a type in `GAINING_TYPES`."""
    device_number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return False
    for line in lines:
        mount, _, kind = line.partition(" - ")
        if mount.split()[2] == device_number:
            return kind.split()[0] in GAINING_TYPES
    return False


@functools.cache
def _fallocate() -> Any:
    """Return the C library's ``fallocate`` with 64-bit offsets, or None if it has none."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function
