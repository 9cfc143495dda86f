"""The CPU time and the memory of a process tree, from /proc."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def tree(root: int) -> list[int]:
    """The process and all its living descendants."""
    parents: dict[int, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                parents[int(entry.name)] = int(fields[1])
    found = [root]
    for pid in found:  # The list grows during the iteration.
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def cpu_seconds(root: int) -> float:
    """User and system time of the tree so far; children that ended are in their parents' figures.

    Resolution is one clock tick, mostly 10 ms.
    """
    ticks = 0
    for pid in tree(root):
        fields = _stat(pid)
        # utime, stime, cutime and cstime: fields 14 to 17 of proc(5).
        ticks += sum(int(field) for field in fields[11:15]) if fields else 0
    return ticks / TICKS_PER_S


def cpu_nanoseconds(root: int) -> int:
    """User and system time of the living processes of the tree so far, in nanoseconds.

    The clock of a process counts all its threads, including ended threads. Linux encodes the
    process id in the number of the clock, see clock_getcpuclockid(3).
    """
    total = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            total += time.clock_gettime_ns((~pid << 3) | 2)
    return total


def peak_memory_bytes(root: int) -> int:
    """The sum of the peak resident sizes (VmHWM) of the tree."""
    return sum(_status_bytes(pid, "VmHWM:") for pid in tree(root))


def memory_bytes(root: int) -> int:
    """The sum of the resident sizes (VmRSS) of the tree."""
    return sum(_status_bytes(pid, "VmRSS:") for pid in tree(root))


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command, which may hold spaces; [] if it ended."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _status_bytes(pid: int, field: str) -> int:
    try:
        lines = (PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
