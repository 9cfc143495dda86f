"""The time in which a thread was ready to run and waited for a processor.

Linux counts it for each thread in `/proc/PID/task/TID/schedstat`: nanoseconds on a processor,
nanoseconds in a run queue, and the number of times that a processor was given to the thread. The
time in which a thread is blocked, for example by a read from a disk, is in neither of these times.
"""

from __future__ import annotations

import os
from typing import NamedTuple

SCHEDSTAT = "/proc/thread-self/schedstat"
LINE_BYTES_MAX = 64


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

    def read(self) -> Queued:
        """Return the totals. It takes some 3 us."""
        if self._file < 0:
            return Queued(0, 0)
        _, waited_ns, scheduled = os.pread(self._file, LINE_BYTES_MAX, 0).split()
        return Queued(int(waited_ns), int(scheduled))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def busy_ms(cpu_ms: float, wall_ms: float, waited_ms: float) -> float:
    """Return the wall time less the waits: the time on a processor, and that of blocking calls.

    It is never below the CPU time, which another clock measures.
    """
    return max(cpu_ms, wall_ms - waited_ms)
