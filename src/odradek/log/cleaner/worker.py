"""The cleaner's worker process: jobs come in on stdin, reports go out on stdout (see `job`).

It inherits nothing of the broker but these pipes, stands back when others want the processors (see
`stand_back`), and ends when stdin does, in the middle of a job too: a broker that was killed leaves
no worker behind. It works in the directory of the log, by relative names: a partition that is
deleted meanwhile is renamed with it.

The worker shares no object with the broker, so the environment of the broker does not reach it.
`main` is given files, clock and a wait of its own.
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
from odradek.log.cleaner.cleaning import Cleaning, CorruptLog, Throttle
from odradek.log.cleaner.worker_protocol import (
    CleaningDone,
    CleaningFailed,
    CleaningJob,
    Report,
    decode_job,
    encode_report,
)

NICE = 10
AUTOGROUP = "/proc/self/autogroup"
AUTOGROUP_NICE = 19
HERE = "."


class _Broker:
    """The other end of the pipes."""

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
        sys.stdout.buffer.write(encode_report(report))
        sys.stdout.buffer.flush()


def main(files: Files, clock: Clock, wait: Callable[[float], object]) -> None:
    """Clean one log after the other. `wait(seconds)` holds the worker back for the throttle."""
    stand_back()
    broker = _Broker()
    while True:
        job = decode_job(broker.receive())
        try:
            throttle = Throttle(job.bytes_per_second, clock, wait)
            broker.report(_clean(job, broker, files, throttle, clock))
        except OSError as error:
            broker.report(CleaningFailed(error.errno or -1, str(error)))
        except CorruptLog as error:
            broker.report(CleaningFailed(0, str(error)))
        except Exception as error:  # noqa: BLE001 - the broker hears of it
            # A bug that one log brings to light: the others are cleaned all the same.
            traceback.print_exc()
            broker.report(CleaningFailed(0, repr(error)))


def stand_back() -> None:
    """Others get the processors first. Before any thread is started: it inherits the nice value.

    Where Linux groups processes by session ("autogroup", when the broker is in no cgroup) a nice
    value counts only within the worker's session, in which it is alone: there the group itself has
    to be nice, or the worker takes as large a share as the whole broker. It does not starve: beside
    one busy process of the usual priority on its processor the group gets 1.4 % of it (a weight of
    15 to 1,024), and without such groups the nice value leaves it 9.7 % (110 to 1,024).

    It is not SCHED_IDLE: a processor on which only such a process runs counts as free, so threads
    that wake up are put there, but between groups they do not displace it at once.
    """
    os.nice(NICE)
    if os.getsid(0) == os.getpid():  # in another's session it would be the other's
        with contextlib.suppress(OSError), open(AUTOGROUP, "r+", encoding="ascii") as group:  # noqa: PTH123
            group.write(str(AUTOGROUP_NICE))


def _clean(
    job: CleaningJob, broker: _Broker, files: Files, throttle: Throttle, clock: Clock
) -> CleaningDone:
    started_ms = clock.monotonic_ms()
    os.chdir(job.directory)
    cleaning = Cleaning(job, files, HERE, throttle)
    for group in cleaning.groups():
        broker.report(group)
        broker.receive()
    return cleaning.done((clock.monotonic_ms() - started_ms) / 1000)


if __name__ == "__main__":
    main(RealFiles(), SystemClock(), threading.Event().wait)
