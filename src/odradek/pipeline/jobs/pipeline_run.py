"""One driver for any number of tables, each with a query of its own.

Each table has a thread, which follows its query and starts it again after a failure
(`operation.retries`). A table that fails for good does not stop the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek.pipeline.errors import NoBroker, PipelineError
from odradek.pipeline.operation.retries import (
    NO_FAILURES,
    Cause,
    RetryState,
    after_failure,
    cause_of,
)
from odradek.pipeline.operation.status import TableStatus

if TYPE_CHECKING:
    from odradek.pipeline.jobs.ingest import IngestSummary
    from odradek.pipeline.progress import Progress

logger = logging.getLogger(__name__)

TABLES_MAX = 200
"""Largest number of tables of one driver. Each has a thread here and a query in the JVM."""


class TableJob(Protocol):
    """The ingest of one table (`jobs.ingest.IngestJob`)."""

    def run(self, stop: threading.Event) -> IngestSummary: ...


NewJob = Callable[[str, Callable[["Progress"], None]], TableJob]
"""Returns a new job of a table. It calls the function with the progress of each batch."""

NewThread = Callable[[Callable[[], None], str], threading.Thread]
"""Returns a thread for a function and a table."""


class PipelineRun:
    """The tables of one driver, from `run` to its return.

    Args:
        tables: The names of the tables.
        new_job: Makes the job of a table.
        clock: The time in seconds, which never goes back.
        new_thread: Makes the thread of a table. Spark's jobs take their pool from it.
        on_progress: Called with table and batch, on the table's thread.
    """

    def __init__(
        self,
        tables: tuple[str, ...],
        new_job: NewJob,
        clock: Callable[[], float],
        new_thread: NewThread,
        on_progress: Callable[[str, Progress], None] = lambda table, progress: None,
    ) -> None:
        if len(tables) > TABLES_MAX:
            raise PipelineError(
                f"The definition has {len(tables)} tables, and a driver has {TABLES_MAX} at most."
                " Use several definitions."
            )
        self._new_job = new_job
        self._clock = clock
        self._new_thread = new_thread
        self._on_progress = on_progress
        self._statuses = {table: TableStatus() for table in tables}

    @property
    def statuses(self) -> Mapping[str, TableStatus]:
        return self._statuses

    def run(self, stop: threading.Event) -> Mapping[str, TableStatus]:
        """Run all tables to their end, or until `stop` is set. Returns what each has done."""
        threads = [
            self._new_thread(partial(self._run_table, table, stop), table)
            for table in self._statuses
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self._statuses

    def _run_table(self, table: str, stop: threading.Event) -> None:
        status = self._statuses[table]
        state = NO_FAILURES

        def progressed(progress: Progress) -> None:
            nonlocal state
            state = NO_FAILURES
            status.finish_batch(progress)
            self._on_progress(table, progress)

        try:
            while not stop.is_set():
                status.start()
                try:
                    self._new_job(table, progressed).run(stop)
                    return
                except Exception as error:  # noqa: BLE001  # whatever it is, other tables go on
                    state, delay_s = self._failed(table, error, state)
                if delay_s is None:
                    return
                stop.wait(delay_s)
        finally:
            status.end()

    def _failed(
        self, table: str, error: Exception, state: RetryState
    ) -> tuple[RetryState, float | None]:
        """Note a failure, and return the seconds until the next start, or None for no more."""
        status = self._statuses[table]
        cause = _cause(error)
        state, delay_s = after_failure(state, cause, self._clock())
        status.fail(_first_line(error), error if delay_s is None else None)
        if delay_s is None:
            logger.error(
                "Table %s has failed and is not started again (%s): %s",
                table,
                cause.value,
                status.problem,
            )
        else:
            logger.warning(
                "Table %s is started again in %.0f s (%s, failure %d): %s",
                table,
                delay_s,
                cause.value,
                state.failures,
                status.problem,
            )
        return state, delay_s


def _cause(error: Exception) -> Cause:
    if isinstance(error, NoBroker):
        return Cause.BROKER
    if isinstance(error, PipelineError):
        return Cause.OTHER
    # An exception of Spark has the stack of the JVM with all causes.
    return cause_of(f"{error}\n{getattr(error, '_stackTrace', '')}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
