"""The time in which a thread was ready to run and waited for a processor.

Linux counts it for each thread in `/proc/PID/task/TID/schedstat`: nanoseconds on a processor,
nanoseconds in a run queue, and the number of times that a processor was given to the thread. The
time in which a thread is blocked, for example by a read from a disk, is in neither of these times.
"""

from __future__ import annotations

import ctypes
import os
from typing import NamedTuple

SCHEDSTAT = "/proc/thread-self/schedstat"
LINE_BYTES_MAX = 64

# `os.pread` would release the interpreter, and the thread would wait until it has it again.
_pread = ctypes.PyDLL(None).pread
_pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
_pread.restype = ctypes.c_ssize_t


class Queued(NamedTuple):
    """Totals of a thread since its start."""

    waited_ns: int
    scheduled: int
    """Number of times that a processor was given to the thread."""


class RunQueue:
    """Reads the totals of the thread that creates it. They are 0 on a system without them."""

    def __init__(self, path: str = SCHEDSTAT) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            self._file = -1
        self._buffer = ctypes.create_string_buffer(LINE_BYTES_MAX)

    def read(self) -> Queued:
        """Return the totals. It takes some 3 us."""
        if self._file < 0:
            return Queued(0, 0)
        length = _pread(self._file, self._buffer, LINE_BYTES_MAX, 0)
        if length <= 0:
            raise OSError(f"cannot read {SCHEDSTAT}")
        _, waited_ns, scheduled = self._buffer.raw[:length].split()
        return Queued(int(waited_ns), int(scheduled))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def busy_ms(cpu_ms: float, wall_ms: float, waited_ms: float) -> float:
    """Return the wall time less the waits: time on a processor, and time of blocking calls.

    It is never below the CPU time, which another clock measures.
    """
    return max(cpu_ms, wall_ms - waited_ms)
