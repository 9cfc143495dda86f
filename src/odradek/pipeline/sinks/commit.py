"""The protocol of a sink, and the offsets of a parsed batch."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.pipeline.ledger.commits import BatchCommit, ReadRange


class Sink(Protocol):
    """One table at one path. It takes each (query_id, batch_id) once."""

    def prepare(self, schema: StructType) -> None:
        """Create the empty table if it does not exist."""

    def exists(self) -> bool:
        """Return whether `prepare` was ever called on this path."""

    def commit(self, rows: DataFrame, batch: BatchCommit) -> None:
        """Append `rows` as `batch`, whole or not at all. Skip a batch that the table already has.

        Raises:
            PipelineError: The table has a batch of that number with other planned offsets.
        """

    def last_commit(self) -> BatchCommit | None:
        """Return the newest commit, or None if the table does not exist or has none."""

    def commits(self) -> list[BatchCommit]:
        """Return all commits, oldest first, as far as the table's history goes back."""

    def read(self) -> DataFrame:
        """Return the committed rows. Raise AnalysisException if the table does not exist."""


def read_ranges(parsed: DataFrame) -> tuple[tuple[ReadRange, ...], int]:
    """Return the ranges of a parsed batch, in order, and how many of its rows did not parse."""
    counted = parsed.groupBy("topic", "partition").agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count(F.lit(1)).alias("rows"),
        F.count("reason").alias("rejected"),
    )
    rows = counted.orderBy("topic", "partition").collect()
    ranges = tuple(
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
    return ranges, sum(row["rejected"] for row in rows)
