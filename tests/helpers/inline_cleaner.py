"""A worker of the log cleaner without a process: it cleans while the broker waits for a report.

`BrokerServer(start_cleaner_worker=...)` takes a function that returns one. The simulator and tests
on a single thread use it.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.environment.clock import Clock
from odradek.environment.files import Files
from odradek.log.cleaner.cleaning import reports
from odradek.log.cleaner.worker_protocol import CleaningJob, Report, WorkerEnded


class InlineCleaner:
    """A `CleanerWorker` that runs the code of the worker process in the calling thread.

    It ignores the limit on its bytes per second, because a wait would stop the event loop.
    """

    def __init__(self, files: Files, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._reports: Iterator[Report] = iter(())
        self._killed = False

    def start(self, job: CleaningJob) -> None:
        self._check()
        self._reports = reports(job, self._files, job.directory, self._clock, lambda _: None)

    def report(self) -> Report:
        self._check()
        return next(self._reports)

    def resume(self) -> None:
        self._check()

    def kill(self) -> None:
        self._killed = True

    def close(self) -> None:
        self._killed = True

    def _check(self) -> None:
        if self._killed:
            raise WorkerEnded("killed")
