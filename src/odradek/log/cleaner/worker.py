"""The cleaner's worker process: it reads jobs from stdin and writes reports to stdout.

The messages are in `worker_protocol`. The worker inherits only these pipes from the broker, and
leaves the processors to other processes (see `lower_priority`). It ends when stdin ends, even in
the middle of a job, so a killed broker leaves no worker behind. It works in the directory of the
log with relative names. If the partition is deleted, the directory is renamed and the names stay
valid.

The worker shares no object with the broker, so the environment of the broker does not apply to it.
`main` takes its own files, clock and wait function.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable

from odradek.environment.clock import Clock, SystemClock
from odradek.environment.files import Files, RealFiles
from odradek.log.cleaner.cleaning import reports
from odradek.log.cleaner.worker_protocol import (
    CleanedGroup,
    CleaningFailed,
    Report,
    decode_job,
    encode_report,
)

NICE = 10
AUTOGROUP = "/proc/self/autogroup"
AUTOGROUP_NICE = 19
HERE = "."


class _Broker:
    """The broker, at the other end of the pipes."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin.buffer:
            self._lines.put(line)
        os._exit(0)

    def receive(self) -> bytes:
        return self._lines.get()

    def report(self, report: Report) -> None:
        """Write a report. End the process if the broker has ended.

        A normal exit would wait for the lock of stdin, which `_listen` holds while it reads.
        """
        try:
            sys.stdout.buffer.write(encode_report(report))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            os._exit(0)


def main(files: Files, clock: Clock, wait: Callable[[float], object]) -> None:
    """Clean one log at a time. `wait(seconds)` delays the worker for the throttle."""
    lower_priority()
    broker = _Broker()
    while True:
        job = decode_job(broker.receive())
        try:
            os.chdir(job.directory)
            for report in reports(job, files, HERE, clock, wait):
                broker.report(report)
                if isinstance(report, CleanedGroup):
                    broker.receive()
        except OSError as error:  # the directory does not exist
            broker.report(CleaningFailed(error.errno or -1, str(error)))
        except Exception as error:  # noqa: BLE001 - reported to the broker
            # A bug that only one log triggers must not prevent the cleaning of the others.
            traceback.print_exc()
            broker.report(CleaningFailed(0, repr(error)))


def lower_priority() -> None:
    """Lower the priority of the process. Called before any thread starts: threads inherit it.

    Linux may group processes by session ("autogroup", if the broker is in no cgroup). A nice value
    then counts only within the worker's session, which has no other process. In this case the group
    needs a nice value of its own, or the worker gets as large a share as the whole broker. The
    worker does not starve. Beside one busy process of normal priority on its processor the group
    gets 1.4 % of it (a weight of 15 to 1,024). Without such groups the nice value gives it 9.7 %
    (110 to 1,024).

    SCHED_IDLE is not used. A processor that runs only such a process counts as free, so the
    scheduler places waking threads there. Between groups they do not preempt it immediately.
    """
    os.nice(NICE)
    if os.getsid(0) == os.getpid():  # another session's group belongs to other processes, too
        with contextlib.suppress(OSError), open(AUTOGROUP, "r+", encoding="ascii") as group:  # noqa: PTH123
            group.write(str(AUTOGROUP_NICE))


if __name__ == "__main__":
    main(RealFiles(), SystemClock(), threading.Event().wait)
