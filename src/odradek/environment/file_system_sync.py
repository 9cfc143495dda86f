"""A sync of a whole file system (Linux `syncfs`)."""

from __future__ import annotations

import functools
import os
from typing import Any


def sync_file_system(fd: int) -> None:
    """Return when all data and names of the file system of an open file are on the disk.

    Without `syncfs` all file systems are synced, and errors are not reported.

    Raises:
        OSError: Data could not be written. Linux reports this since version 5.8.
    """
    syncfs = _syncfs()
    if syncfs is None:
        os.sync()
    elif syncfs(fd) != 0:
        import ctypes

        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@functools.cache
def _syncfs() -> Any:
    """Return the C library's ``syncfs``, or None if it has none."""
    import ctypes

    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
