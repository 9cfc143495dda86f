"""A constant cost of new files during a measurement.

ext4 without a journal does not use the inode of a file that was removed in the last six minutes,
and each creation of a file searches past such inodes. After the removal of 10,000 files, the
creation of one file takes up to 0.6 ms of CPU time instead of 0.02 ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

FILES = 200
DIRECTORY_FILES = 4
CREATION_MS_MAX = 0.08
PAUSE_S = 15.0
PAUSES_MAX = 40


class ExpensiveFiles(Exception):
    """The creation of files stays expensive, so CPU times of the run would be wrong."""


def creation_ms(directory: Path) -> float:
    """Return the mean CPU time in which a file of `directory` is made, in milliseconds.

    The files stay: their removal would have the effect that is measured.
    """
    directory.mkdir(parents=True)
    began = time.thread_time()
    for number in range(FILES // DIRECTORY_FILES):
        part = directory / str(number)
        part.mkdir()
        for name in range(1, DIRECTORY_FILES):
            (part / str(name)).write_bytes(b"x")
    return (time.thread_time() - began) * 1000 / FILES


def await_cheap_files(
    directory: Path,
    report: Callable[[str], None],
    *,
    measure: Callable[[Path], float] = creation_ms,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until new files in `directory` are cheap.

    Raises:
        ExpensiveFiles: They are not, after `PAUSES_MAX` pauses.
    """
    for number in range(PAUSES_MAX):
        cost_ms = measure(directory / f"probe-{number}")
        if cost_ms <= CREATION_MS_MAX:
            return
        report(f"waiting for the file system: a new file takes {cost_ms:.2f} ms of CPU time")
        pause(PAUSE_S)
    raise ExpensiveFiles(
        f"a new file takes {cost_ms:.2f} ms of CPU time. Do not remove files during the run"
    )
