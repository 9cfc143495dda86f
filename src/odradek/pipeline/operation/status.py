"""What a table of a running pipeline does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.pipeline.progress import Progress


class TableStatus:
    """The status of one table. The table's own thread changes it, and others read it.

    Attributes:
        batches: Batches that finished since the start of the driver.
        accepted: Rows in the table from these batches.
        rejected: Rows in the quarantine from these batches.
        starts: How often its query was started.
        newest: The newest batch.
        problem: Why the query does not run now, in one line.
        failure: The failure that was final.
        has_ended: Whether the table is done, or has failed.
    """

    def __init__(self) -> None:
        self.batches = 0
        self.accepted = 0
        self.rejected = 0
        self.starts = 0
        self.newest: Progress | None = None
        self.problem: str | None = None
        self.failure: Exception | None = None
        self.has_ended = False

    @property
    def is_running(self) -> bool:
        return self.problem is None and not self.has_ended

    def start(self) -> None:
        """Note that the query is started."""
        self.starts += 1

    def finish_batch(self, progress: Progress) -> None:
        """Note a finished batch. The query runs."""
        self.newest, self.problem = progress, None
        self.batches += 1
        self.accepted += progress.accepted
        self.rejected += progress.rejected

    def fail(self, problem: str, failure: Exception | None) -> None:
        """Note a failure.

        Args:
            problem: The failure in one line.
            failure: The failure, if the query is not started again.
        """
        self.problem, self.failure = problem, failure

    def end(self) -> None:
        """Note that the table is done, or has failed."""
        self.has_ended = True
