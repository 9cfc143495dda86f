"""The table directory of an ingest (`--table-dir`).

DIR/table        the rows that parsed
DIR/quarantine   the other rows, with reason and raw bytes
DIR/checkpoint   Spark's record of the query: its id, each batch's offsets, the finished batches
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.commit import Sink
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.parquet import ParquetSink


class TableFormat(StrEnum):
    DELTA = "delta"
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

    def _sink(self, spark: SparkSession, role: str) -> Sink:
        if self.format is TableFormat.DELTA:
            return DeltaSink(spark, self.path(role), role)
        return ParquetSink(spark, self.path(role))
