"""The cleaner's worker process: jobs come in on stdin, reports go out on stdout (see `job`).

It inherits nothing of the broker but these pipes, runs at a lower priority, and ends when stdin
does, in the middle of a job too: a broker that was killed leaves no worker behind. It works in the
directory of the log, by relative names: a partition that is deleted meanwhile is renamed with it.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback

from odradek.clock import SystemClock
from odradek.log.cleaner.cleaning import Cleaning, CorruptLog, Throttle
from odradek.log.cleaner.job import (
    CleaningDone,
    CleaningFailed,
    CleaningJob,
    Report,
    decode_job,
    encode_report,
)
from odradek.log.files import RealFiles

NICE = 10
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


def main() -> None:
    os.nice(NICE)
    broker = _Broker()
    while True:
        job = decode_job(broker.receive())
        try:
            broker.report(_clean(job, broker))
        except OSError as error:
            broker.report(CleaningFailed(error.errno or -1, str(error)))
        except CorruptLog as error:
            broker.report(CleaningFailed(0, str(error)))
        except Exception as error:  # noqa: BLE001 - the broker hears of it
            # A bug that one log brings to light: the others are cleaned all the same.
            traceback.print_exc()
            broker.report(CleaningFailed(0, repr(error)))


def _clean(job: CleaningJob, broker: _Broker) -> CleaningDone:
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    os.chdir(job.directory)
    throttle = Throttle(job.bytes_per_second, clock, threading.Event().wait)
    cleaning = Cleaning(job, RealFiles(), HERE, throttle)
    for group in cleaning.groups():
        broker.report(group)
        broker.receive()
    return cleaning.done((clock.monotonic_ms() - started_ms) / 1000)


if __name__ == "__main__":
    main()
