"""Table directory whose tables report the steps of a batch, so that a test can stop it there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.sinks.commit import Batch, Check, Complete, Sink
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.iceberg import IcebergSink
from odradek.pipeline.sinks.ledgered import LedgeredTable
from odradek.pipeline.tables import TableDir, TableFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Step(StrEnum):
    """The steps of a batch between which a crash leaves different states."""

    BEFORE_TABLE = "before-table-commit"
    TABLE_STAGED = "table-staged"
    TABLE_COMMITTED = "table-committed"
    QUARANTINE_STAGED = "quarantine-staged"
    QUARANTINE_COMMITTED = "quarantine-committed"


def steps_of(table_format: TableFormat) -> list[Step]:
    """Return the steps of a format in order. Only Iceberg stages a batch in the table itself."""
    staged = (Step.TABLE_STAGED, Step.QUARANTINE_STAGED)
    return [one for one in Step if table_format is TableFormat.ICEBERG or one not in staged]


AtStep = Callable[[Step, int], None]


class TableWithSteps(LedgeredTable):
    """A table that calls `before` and `after` around each commit.

    With `forgets` it is a mutant, which writes each batch without a look at its ledger.
    """

    def with_steps(
        self, before: Callable[[int], None], after: Callable[[int], None], forgets: bool
    ) -> None:
        self._before = before
        self._after = after
        self._forgets = forgets

    def commit(self, batch: Batch) -> BatchCommit:
        batch_id = batch.draft.batch_id
        self._before(batch_id)
        commit = self._append(batch) if self._forgets else super().commit(batch)
        self._after(batch_id)
        return commit

    def _append(self, batch: Batch) -> BatchCommit:
        commits: list[BatchCommit] = []

        def complete() -> BatchCommit:
            commits.append(batch.complete(batch.draft))
            return commits[-1]

        self._sink.append(batch.rows, batch.draft, complete, self._check)
        self._store.refresh()
        return commits[-1]


class DeltaSinkWithoutTransactions(DeltaSink):
    """A mutant: its commits do not name their batch to Delta."""

    def append(self, rows: DataFrame, draft: BatchCommit, complete: Complete, check: Check) -> None:
        rows = rows.persist()  # the counts are known before the commit, too
        rows.count()
        writer = rows.write.format("delta").mode("append")
        writer.option("userMetadata", complete().to_json()).save(self._path)


class IcebergSinkWithSteps(IcebergSink):
    """A table that calls `at_staged` when a batch is on its branch, and not published."""

    at_staged: Callable[[int], None]

    def append(self, rows: DataFrame, draft: BatchCommit, complete: Complete, check: Check) -> None:
        def check_when_staged() -> None:
            self.at_staged(draft.batch_id)
            check()

        super().append(rows, draft, complete, check_when_staged)


@dataclass(frozen=True, slots=True)
class TableDirWithSteps(TableDir):
    """A table directory that calls `at_step` with each step and its batch id.

    The quarantine is committed only for a batch with rows that did not parse.
    """

    at_step: AtStep
    forget_transactions: bool = False

    def ledgered(
        self, spark: SparkSession, role: str, check: Check, *, accept_changes: bool
    ) -> LedgeredTable:
        is_table = role == "table"
        sink = self._sink(spark, role)
        table = TableWithSteps(
            sink,
            self._store(spark, role, sink),
            self.path(role),
            check,
            has_every_batch=is_table,
            accept_changes=accept_changes,
        )

        def before(batch_id: int) -> None:
            if is_table:
                self.at_step(Step.BEFORE_TABLE, batch_id)

        done = Step.TABLE_COMMITTED if is_table else Step.QUARANTINE_COMMITTED
        table.with_steps(
            before, lambda batch_id: self.at_step(done, batch_id), self.forget_transactions
        )
        return table

    def _sink(self, spark: SparkSession, role: str) -> Sink:
        if self.format is TableFormat.ICEBERG:
            staged = Step.TABLE_STAGED if role == "table" else Step.QUARANTINE_STAGED
            sink = IcebergSinkWithSteps(spark, self.path(role))
            sink.at_staged = lambda batch_id: self.at_step(staged, batch_id)
            return sink
        if self.forget_transactions:
            assert self.format is TableFormat.DELTA
            return DeltaSinkWithoutTransactions(spark, self.path(role), role)
        return super(TableDirWithSteps, self)._sink(spark, role)
