"""Table directory whose sinks report the steps of a batch, so that a test can stop it there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from odradek.pipeline.ledger.commits import BatchCommit
from odradek.pipeline.sinks.commit import Sink
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.tables import TableDir, TableFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Step(StrEnum):
    """The steps of a batch between which a crash leaves different states."""

    BEFORE_TABLE = "before-table-commit"
    TABLE_COMMITTED = "table-committed"
    QUARANTINE_COMMITTED = "quarantine-committed"


AtStep = Callable[[Step, int], None]


class SinkWithSteps:
    """A sink that calls `before` and `after` around each commit."""

    def __init__(
        self, inner: Sink, before: Callable[[int], None], after: Callable[[int], None]
    ) -> None:
        self._inner = inner
        self._before = before
        self._after = after

    def prepare(self, schema: StructType) -> None:
        self._inner.prepare(schema)

    def exists(self) -> bool:
        return self._inner.exists()

    def commit(self, rows: DataFrame, batch: BatchCommit) -> None:
        self._before(batch.batch_id)
        self._inner.commit(rows, batch)
        self._after(batch.batch_id)

    def last_commit(self) -> BatchCommit | None:
        return self._inner.last_commit()

    def commits(self) -> list[BatchCommit]:
        return self._inner.commits()

    def read(self) -> DataFrame:
        return self._inner.read()


class DeltaSinkWithoutTransactions(DeltaSink):
    """A mutant: its commits do not name their batch to Delta."""

    def transaction_options(self, batch: BatchCommit) -> dict[str, str]:
        return {}


@dataclass(frozen=True, slots=True)
class TableDirWithSteps(TableDir):
    """A table directory that calls `at_step` with each step and its batch id.

    The quarantine is committed only for a batch with rows that did not parse.
    """

    at_step: AtStep
    forget_transactions: bool = False

    def table(self, spark: SparkSession) -> Sink:
        return SinkWithSteps(
            self._inner(spark, "table"),
            lambda batch_id: self.at_step(Step.BEFORE_TABLE, batch_id),
            lambda batch_id: self.at_step(Step.TABLE_COMMITTED, batch_id),
        )

    def quarantine(self, spark: SparkSession) -> Sink:
        return SinkWithSteps(
            self._inner(spark, "quarantine"),
            lambda batch_id: None,
            lambda batch_id: self.at_step(Step.QUARANTINE_COMMITTED, batch_id),
        )

    def _inner(self, spark: SparkSession, role: str) -> Sink:
        if self.forget_transactions:
            assert self.format is TableFormat.DELTA
            return DeltaSinkWithoutTransactions(spark, self.path(role), role)
        return self._sink(spark, role)
