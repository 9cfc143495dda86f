"""The directory of a run, and the processes and files that a killed run left behind.

A run that ends by SIGKILL cannot stop its brokers. They would go on beside the next measurement.
All brokers of a run have their working directory in the run's directory. The run holds a lock on a
file with the name of its directory, so the next run finds directories without a living owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testkit.peer.server import cache_directory

OWNER = ".owner"
PROC = Path("/proc")


@contextmanager
def work_directory(report: Callable[[str], None]) -> Iterator[Path]:
    """A directory for a run, in which its child processes create their temporary files too."""
    owners = cache_directory() / "evidence-runs"
    owners.mkdir(exist_ok=True)
    remove_left_behind(owners, report)
    work = Path(tempfile.mkdtemp(prefix="evidence-"))
    new = owners / f"{work.name}.new"
    with new.open("w", encoding="utf-8") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        owner.write(str(work))
        owner.flush()
        path = new.rename(owners / f"{work.name}{OWNER}")
        before = os.environ.get("TMPDIR")
        _set_temporary_directory(str(work))
        try:
            yield work
        finally:
            _set_temporary_directory(before)
            shutil.rmtree(work, ignore_errors=True)
            path.unlink()


def _set_temporary_directory(path: str | None) -> None:
    if path is None:
        os.environ.pop("TMPDIR", None)
    else:
        os.environ["TMPDIR"] = path
    tempfile.tempdir = path


def remove_left_behind(owners: Path, report: Callable[[str], None]) -> None:
    """Kill the processes of runs whose owner has ended, and remove their directories."""
    for path in sorted(owners.glob(f"*{OWNER}")):
        with contextlib.suppress(OSError), path.open(encoding="utf-8") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Fails while the owner lives.
            work = Path(owner.read())
            for pid in processes_in(work):
                report(f"killing process {pid}, which a killed run left in {work}")
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(work, ignore_errors=True)
            path.unlink()


def processes_in(directory: Path) -> list[int]:
    """The processes whose working directory is `directory` or below it."""
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cwd").readlink().is_relative_to(directory):
                    found.append(int(entry.name))
    return found
