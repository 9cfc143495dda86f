"""The table directory of an ingest (`--table-dir`).

DIR/table        the rows that parsed
DIR/quarantine   the other rows, with reason and raw bytes
DIR/checkpoint   Spark's record of the query: its id, each batch's offsets, the finished batches
DIR/ledger       copies of the commits of table and quarantine (`ledger.store`)
DIR/owner        the driver that owns the directory (`ledger.owner`)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.store import LedgerStore
from odradek.pipeline.sinks.commit import Check, Sink
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.files import HadoopFiles
from odradek.pipeline.sinks.iceberg import IcebergSink
from odradek.pipeline.sinks.ledgered import LedgeredTable
from odradek.pipeline.sinks.parquet import ParquetSink


class TableFormat(StrEnum):
    DELTA = "delta"
    ICEBERG = "iceberg"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class TableDir:
    """The directory of one ingest; `root` is any path that Spark can write to."""

    root: str
    format: TableFormat

    def table(self, spark: SparkSession) -> Sink:
        return self._sink(spark, "table")

    def quarantine(self, spark: SparkSession) -> Sink:
        return self._sink(spark, "quarantine")

    @property
    def checkpoint(self) -> str:
        return self.path("checkpoint")

    def path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    @classmethod
    def find(cls, spark: SparkSession, root: str) -> TableDir:
        """Return the table directory at `root` with the format of its table.

        Raises:
            PipelineError: There is no table.
        """
        for table_format in TableFormat:
            tables = cls(root, table_format)
            if tables.table(spark).exists():
                return tables
        raise PipelineError(f"{root} is not the directory of an ingest. Check the path.")

    def create_views(self, spark: SparkSession) -> None:
        """Create the views `t` and `quarantine` of the two tables in the session.

        Raises:
            PipelineError: One of the tables does not exist.
        """
        for name, sink in (("t", self.table(spark)), ("quarantine", self.quarantine(spark))):
            if not sink.exists():
                raise PipelineError(
                    f"{self.root} is not the {self.format} directory of an ingest. Check"
                    " --table-dir and --format."
                )
            sink.read().createOrReplaceTempView(name)

    def store(self, spark: SparkSession, role: str) -> LedgerStore:
        """Return the ledger of "table" or "quarantine", which is not loaded yet."""
        return self._store(spark, role, self._sink(spark, role))

    def _store(self, spark: SparkSession, role: str, sink: Sink) -> LedgerStore:
        files, path = HadoopFiles(spark), self.path(f"ledger/{role}")
        return LedgerStore(files, path, self.path(role), sink.tail)

    def ledgered(
        self, spark: SparkSession, role: str, check: Check, *, accept_changes: bool
    ) -> LedgeredTable:
        """Return "table" or "quarantine" for the driver that owns the directory."""
        sink = self._sink(spark, role)
        return LedgeredTable(
            sink,
            self._store(spark, role, sink),
            self.path(role),
            check,
            has_every_batch=role == "table",
            accept_changes=accept_changes,
        )

    def _sink(self, spark: SparkSession, role: str) -> Sink:
        if self.format is TableFormat.DELTA:
            return DeltaSink(spark, self.path(role), role)
        if self.format is TableFormat.ICEBERG:
            return IcebergSink(spark, self.path(role))
        return ParquetSink(spark, self.path(role))
