"""Memory with a constant cost of use during a measurement.

A virtual machine may return its free memory to the host (free page reporting). The next use of such
a page is an exit to the host. Writing a gigabyte into the page cache then costs two or three CPU
seconds instead of a fifth of a second. This happens at random and to any broker that writes. If
this program has the permission (root), free page reporting is off during the measurement, and the
free memory is touched once before.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ORDER = Path("/sys/module/page_reporting/parameters/page_reporting_order")
"""Free blocks of this order and larger are lent."""

NO_ORDER = 11
"""Larger than any block of the page allocator."""

KEPT_FREE_BYTES = 1 << 30
PAGE_BYTES = 4096
MEMINFO = Path("/proc/meminfo")


@contextmanager
def steady_memory(report: Callable[[str], None]) -> Iterator[bool]:
    """Whether memory is steady: it was touched, and is not lent until the context ends."""
    try:
        before = int(ORDER.read_text())
        ORDER.write_text(str(NO_ORDER))
    except (OSError, ValueError):
        yield not ORDER.exists()
        return
    try:
        report("touching the free memory, which the host may have taken back ...")
        _touch(_free_bytes() - KEPT_FREE_BYTES)
        yield True
    finally:
        ORDER.write_text(str(before))


def _free_bytes() -> int:
    for line in MEMINFO.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemFree":
            return int(value.split()[0]) * 1024
    return 0


def _touch(size: int) -> None:
    if size <= 0:
        return
    with mmap.mmap(-1, size) as memory:
        for at in range(0, size, PAGE_BYTES):
            memory[at] = 1
