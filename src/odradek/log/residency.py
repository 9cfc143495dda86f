"""Reads on the event loop, which never wait for the disk.

A read on the event loop uses data in the page cache (``preadv`` with RWF_NOWAIT) and indexes in
memory. If something is missing it raises `NotResident`. The caller then repeats the whole read on a
thread, where it may wait.
"""

from __future__ import annotations

import errno

from odradek.environment.files import Files

_NOT_RESIDENT_ERRNOS = frozenset(
    {errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EINTR}
)
"""EAGAIN: the page is not in the cache. The others: the file system lacks RWF_NOWAIT."""


class NotResident(Exception):
    """A read would have to wait for the disk."""


def read_resident(files: Files, fd: int, length: int, position: int, needed: int) -> bytearray:
    """Return up to `length` bytes from the page cache, at least `needed`.

    Raises:
        NotResident: The page cache has fewer bytes, or the file ends earlier. The two cases cannot
            be distinguished without waiting.
        OSError: As for `pread`.
    """
    nowait = files.nowait
    if nowait is None:
        raise NotResident
    buffer = bytearray(length)
    try:
        count = files.preadv(fd, (buffer,), position, nowait)
    except OSError as error:
        if error.errno in _NOT_RESIDENT_ERRNOS:
            raise NotResident from None
        raise
    if count < length:
        if count < needed:
            raise NotResident
        del buffer[count:]
    return buffer


def read_waiting(files: Files, fd: int, length: int, position: int, _needed: int) -> bytes:
    """Return `length` bytes, or fewer at the end of the file. For threads that may wait."""
    return files.pread(fd, length, position)
