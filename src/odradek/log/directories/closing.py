"""Closing many logs in bounded time, even on a slow disk.

Closing a log has three steps. First, the data that the next start needs is written to the page
cache. Second, all of it is synced. Third, the files are closed. Only the second step waits for the
disk. It runs on threads, until the remaining time is needed for the first step of the other logs. A
thread that still waits for an fsync then is abandoned: it changes nothing afterwards.

A log that is still being truncated is left as after a crash, because its producers may be those of
the log before the truncation. The next start recovers it (see `truncation`).
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

from odradek.environment.clock import Clock
from odradek.errors import KafkaError
from odradek.log.unified_log import UnifiedLog

CLOSING_THREADS = 8
"""Number of logs that are synced at the same time. They share the journal's commits."""
UNSYNCED_CLOSE_MS = 0.2
"""Time to write one log to the page cache. This time is reserved for each log."""
LATE_MS = 300.0
"""Time after the deadline during which logs are still written to the page cache."""
_logger = logging.getLogger(__name__)


class ClosedLogs(NamedTuple):
    """The logs that were not closed completely.

    Attributes:
        unsynced: Completely in the page cache, but not synced.
        left: Not written, as after a SIGKILL of the process: there was no time, or the log is still
            being truncated.
    """

    unsynced: list[UnifiedLog]
    left: list[UnifiedLog]


class _State(Enum):
    WAITING = auto()
    WRITING = auto()
    WRITTEN = auto()
    ENDED = auto()
    LEFT = auto()


class _Job:
    __slots__ = ("log", "state")

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        self.state = _State.WAITING


StartThread = Callable[[Callable[[], None], str], None]


def close_logs(
    logs: Iterable[UnifiedLog], clock: Clock, start_thread: StartThread, *, within_ms: float
) -> ClosedLogs:
    """Close all logs within about `within_ms`.

    An error is logged and takes the log's directory offline.

    Args:
        logs: The logs, which nothing else uses.
        clock: The clock of the deadline.
        start_thread: As `odradek.environment.executors.Executors.start_thread`.
        within_ms: Time for syncing the logs, in milliseconds.
    """
    closing = _Closing(logs, clock, clock.monotonic_ms() + within_ms)
    closing.start_threads(start_thread)
    closing.wait_for_syncs()
    closing.write_remaining()
    closing.wait_for_threads()
    return closing.release()


class _Closing:
    """One call of `close_logs`. `_changed` guards the states of the jobs."""

    def __init__(self, logs: Iterable[UnifiedLog], clock: Clock, deadline_ms: float) -> None:
        self._clock = clock
        self._deadline_ms = deadline_ms
        self._jobs = [_Job(log) for log in logs]
        self._waiting = deque(self._jobs)
        self._running: set[int] = set()
        self._changed = threading.Condition()

    def start_threads(self, start_thread: StartThread) -> None:
        for number in range(min(CLOSING_THREADS, len(self._jobs))):
            start_thread(self._sync_waiting, f"odradek-close_{number}")

    def _sync_waiting(self) -> None:
        """Write and sync one log at a time, on a thread."""
        while (job := self._next_to_sync()) is not None:
            if job.log.is_truncating:
                self._set_state(job, _State.LEFT)
                continue
            try:
                job.log.write_before_close(sync_follows=True)
                self._set_state(job, _State.WRITTEN)
                job.log.sync_before_close()
            except KafkaError as error:
                if not job.log.closed:
                    _report(job.log, error)
                # Its directory may be online: it must not be marked as closed.
                self._set_state(job, _State.LEFT)
            else:
                self._set_state(job, _State.ENDED)

    def _next_to_sync(self) -> _Job | None:
        with self._changed:
            if not self._waiting or self._time_for_syncs_ms() <= 0:
                self._changed.notify_all()
                return None
            job = self._waiting.popleft()
            job.state = _State.WRITING
            self._running.add(id(job))
            return job

    def _set_state(self, job: _Job, state: _State) -> None:
        with self._changed:
            job.state = state
            if state in (_State.ENDED, _State.LEFT):
                self._running.discard(id(job))
            self._changed.notify_all()

    def _time_for_syncs_ms(self) -> float:
        kept_ms = len(self._waiting) * UNSYNCED_CLOSE_MS
        return self._deadline_ms - kept_ms - self._clock.monotonic_ms()

    def wait_for_syncs(self) -> None:
        """Return when threads have taken all logs, or when there is no time for further syncs."""
        with self._changed:
            while self._waiting and (left_ms := self._time_for_syncs_ms()) > 0:
                self._changed.wait(_timeout_s(left_ms))

    def write_remaining(self) -> None:
        """Write the logs that no thread has taken to the page cache, as far as time allows."""
        with self._changed:
            others = list(self._waiting)
            self._waiting.clear()
        for job in others:
            if self._clock.monotonic_ms() > self._deadline_ms + LATE_MS:
                return
            if job.log.is_truncating:
                continue
            try:
                job.log.write_before_close(sync_follows=False)
            except KafkaError as error:
                _report(job.log, error)
            else:
                job.state = _State.WRITTEN

    def wait_for_threads(self) -> None:
        """Return when all threads have finished their logs, or when the time is over."""
        with self._changed:
            while self._running:
                writing = any(job.state is _State.WRITING for job in self._jobs)
                end_ms = self._deadline_ms + LATE_MS * writing
                left_ms = end_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    return
                self._changed.wait(_timeout_s(left_ms))

    def release(self) -> ClosedLogs:
        """Close the files of all logs except logs that a thread is still writing."""
        closed = ClosedLogs([], [])
        with self._changed:
            for job in self._jobs:
                if job.state is _State.WRITTEN:
                    closed.unsynced.append(job.log)
                elif job.state is not _State.ENDED:
                    closed.left.append(job.log)
                if job.state is not _State.WRITING:
                    job.log.close(clean=False)
        return closed


def _report(log: UnifiedLog, error: KafkaError) -> None:
    _logger.warning(
        "closing %s failed: %s. The next start recovers its records", log.topic_partition, error
    )


def _timeout_s(ms: float) -> float | None:
    return None if math.isinf(ms) else ms / 1000
