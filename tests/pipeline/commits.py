"""Commits of rows that a test makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.pipeline.sinks.commit import CountedBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odradek.pipeline.ledger.commits import BatchCommit
    from odradek.pipeline.sinks.commit import Check, Sink
    from odradek.pipeline.sinks.ledgered import LedgeredTable


def write(table: LedgeredTable, rows: DataFrame, batch: BatchCommit) -> bool:
    """Commit rows, and return whether they were written: the table did not have the batch."""
    written = False

    class Rows(CountedBatch):
        def complete(self, draft: BatchCommit) -> BatchCommit:
            nonlocal written
            written = True
            return draft

    table.commit(Rows(rows, batch))
    return written


def append(sink: Sink, rows: DataFrame, batch: BatchCommit, check: Check = lambda: None) -> None:
    """Append rows with a commit that is known before."""
    sink.append(rows, batch, lambda: batch, check)
