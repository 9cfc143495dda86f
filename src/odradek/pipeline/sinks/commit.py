"""The protocol of a sink, and the offsets of a parsed batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import BatchCommit, ReadRange
from odradek.pipeline.ledger.store import NOTHING, Tail

Check = Callable[[], None]
"""Raises PipelineError if this driver no longer owns the directory."""

Complete = Callable[[], BatchCommit]
"""Returns the commit of rows that were written, or raises PipelineError to discard them."""


class Batch(Protocol):
    """The rows of one batch, and what is known of them.

    Attributes:
        rows: The rows of the table.
        draft: The commit without the counts of the records.
    """

    @property
    def rows(self) -> DataFrame: ...

    @property
    def draft(self) -> BatchCommit: ...

    def complete(self, draft: BatchCommit) -> BatchCommit:
        """Return the draft with the counts, after `rows` was written.

        Raises:
            PipelineError: The batch must not be committed.
        """

    def count(self, draft: BatchCommit) -> BatchCommit:
        """Return the draft with the counts of a job of its own."""


@dataclass(frozen=True, slots=True)
class CountedBatch:
    """Rows whose commit is known before they are written."""

    rows: DataFrame
    draft: BatchCommit

    def complete(self, draft: BatchCommit) -> BatchCommit:
        return draft

    def count(self, draft: BatchCommit) -> BatchCommit:
        return draft


class Sink(Protocol):
    """One table at one path. `sinks.ledgered` decides which commits it takes."""

    def prepare(self, schema: StructType) -> StructType:
        """Create the table, or change it so that it takes rows of `schema`.

        Returns:
            The schema of the table, which the rows must have.

        Raises:
            PipelineError: The table exists, and the rows do not fit with any change (`evolution`).
        """

    def exists(self) -> bool:
        """Return whether `prepare` was ever called on this path."""

    def take_over(self, epoch: int, check: Check) -> None:
        """Remove the uncommitted batches of earlier owners, which can then no longer commit."""

    def append(self, rows: DataFrame, draft: BatchCommit, complete: Complete, check: Check) -> None:
        """Append `rows` with their commit, whole or not at all.

        The rows are written first, where no reader sees them. Then `complete` is called. If it
        raises, nothing is committed.

        Args:
            rows: The rows.
            draft: The commit as far as it is known before the rows are written.
            complete: Returns the commit.
            check: Raises PipelineError if another driver owns the directory.

        Raises:
            PipelineError: Another driver owns the directory.
        """

    def fence(self, query_id: str) -> None:
        """Prevent all further commits of the query."""

    def begin(self, commit: BatchCommit, check: Check) -> None:
        """Append the commit of a rebuilt checkpoint, which has no rows."""

    def expire(self) -> None:
        """Remove old versions of the table, if the format does not do so itself.

        Call it after the ledger has saved their commits.
        """

    def tail(self, position: int) -> Tail:
        """Return the commits after a position, oldest first."""

    def read(self) -> DataFrame:
        """Return the committed rows. Raise AnalysisException if the table does not exist."""


def commits_of(sink: Sink) -> list[BatchCommit]:
    """Return all commits, oldest first, as far as the table's own history goes back."""
    return list(sink.tail(NOTHING).commits) if sink.exists() else []


def parse_commit(text: str, where: str) -> BatchCommit:
    """Return the commit in the history of a table.

    Args:
        text: The commit as JSON.
        where: The entry of the history, for the message.

    Raises:
        PipelineError: A newer version wrote the commit, or it is damaged.
    """
    try:
        return BatchCommit.from_json(text)
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f"{where} has a commit that this version of Odradek cannot read: {error}. Use the"
            " version that wrote it."
        ) from error


def read_ranges(parsed: DataFrame) -> tuple[ReadRange, ...]:
    """Return the ranges of a parsed batch, in order."""
    counted = parsed.groupBy("topic", "partition").agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count(F.lit(1)).alias("rows"),
        F.count("reason").alias("rejected"),
    )
    rows = counted.orderBy("topic", "partition").collect()
    return tuple(
        ReadRange(
            row["topic"],
            row["partition"],
            row["first"],
            row["last"],
            row["rows"],
            row["rejected"],
        )
        for row in rows
    )
