"""Ingest of topics into a table and its quarantine, each record exactly once.

Spark's checkpoint fixes a batch's offsets before the batch runs and records the batch as done after
it. In between the batch may run any number of times. The sinks make each of their two commits once
for a (query id, batch id), so the tables hold each record once. Tables and checkpoint must stay
together. `IngestJob` refuses to start if one of them was lost or exchanged. It stops if the
checkpoint plans a batch with other offsets than the tables have for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.empty import empty_frame
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.batch_writer import BatchWriter
from odradek.pipeline.jobs.checks import check_parser
from odradek.pipeline.jobs.options import IngestOptions
from odradek.pipeline.progress import Progress, ran_a_batch, total_lag
from odradek.pipeline.sinks.files import HadoopFiles
from odradek.pipeline.transforms.access_log import parse_access_log
from odradek.pipeline.transforms.json import json_parser
from odradek.pipeline.transforms.quarantine import accepted, rejected
from odradek.pipeline.transforms.raw import Parser, parse_raw, records

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_INTERVAL_S = 1
KAFKA_SOURCE_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
    " timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


@dataclass(slots=True)
class IngestSummary:
    """The batches of one run of the job, and their rows."""

    batches: int = 0
    accepted: int = 0
    rejected: int = 0

    def add(self, progress: Progress) -> None:
        self.batches += 1
        self.accepted += progress.accepted
        self.rejected += progress.rejected


def make_parser(name: str, schema: str | None) -> Parser:
    """Return the parser with a name.

    Args:
        name: One of `PARSER_NAMES`.
        schema: Spark DDL, such as "id BIGINT NOT NULL, at TIMESTAMP", for the parser json only.

    Raises:
        PipelineError: No such parser, or the schema is missing, superfluous or malformed.
    """
    check_parser(name, schema)
    if schema is not None:
        return json_parser(parse_schema(schema))
    parsers: dict[str, Parser] = {"raw": parse_raw, "access-log": parse_access_log}
    return parsers[name]


def parse_schema(ddl: str) -> StructType:
    """Parse a schema in Spark's DDL. A session must be running.

    Raises:
        PipelineError: The schema is malformed or has no fields.
    """
    from pyspark.errors import ParseException

    try:
        schema = StructType.fromDDL(ddl)
    except ParseException as error:
        why = str(error).strip().partition("\n")[0].rstrip(".")
        raise PipelineError(f"The schema {ddl!r} is not Spark DDL: {why}.") from error
    if not isinstance(schema, StructType):
        raise PipelineError(f"The schema {ddl!r} has no fields.")
    return schema


class IngestJob:
    """One streaming query from topics into a table directory.

    `start` returns once the query runs. `run` starts the query, follows it to its end, and calls
    `on_progress` on the caller's thread for each batch.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: IngestOptions,
        *,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self._spark = spark
        self._options = options
        self._on_progress = on_progress
        self._checkpoint = Checkpoint(HadoopFiles(spark), options.tables.checkpoint)
        self._table = options.tables.table(spark)
        self._quarantine = options.tables.quarantine(spark)
        self._parser = make_parser(options.parser, options.schema)
        self._writer = BatchWriter(
            self._parser,
            options.parser,
            self._table,
            self._quarantine,
            self._checkpoint,
        )

    def start(self) -> StreamingQuery:
        """Check tables and checkpoint, create missing tables, and start the query.

        Raises:
            PipelineError: Tables and checkpoint do not belong together.
        """
        self._prepare()
        if self._options.once:
            return self._writer_of_stream().trigger(availableNow=True).start()
        return self._writer_of_stream().trigger(processingTime=self._options.interval).start()

    def run(self, stop: threading.Event | None = None) -> IngestSummary:
        """Run to the end of the topics (`once`), or until `stop` is set or the query fails.

        Raises:
            PipelineError: As `start`, or the tables have a batch with other offsets than the
                checkpoint plans for it.
            StreamingQueryException: The query failed for another reason.
        """
        summary = IngestSummary()
        stop = stop or threading.Event()
        if self._options.once and self._checkpoint.has_unfinished_batch():
            # The available-now trigger refuses an unfinished batch if partitions were added to the
            # topic since (KafkaMicroBatchStream compares the batch's partitions with the topic's).
            self._prepare()
            self._follow(self._writer_of_stream().trigger(once=True).start(), summary, stop)
        if not stop.is_set():
            self._follow(self.start(), summary, stop)
        return summary

    def _prepare(self) -> None:
        self._check_tables_fit_checkpoint()
        self._prepare_tables()

    def _writer_of_stream(self) -> DataStreamWriter:
        options = self._options
        source = self._spark.readStream.format("kafka").options(**options.source_options()).load()
        writer = source.writeStream.foreachBatch(self._writer)
        writer = writer.option("checkpointLocation", options.tables.checkpoint)
        return writer.queryName(f"ingest {','.join(options.topics)}")

    def _follow(self, query: StreamingQuery, summary: IngestSummary, stop: threading.Event) -> None:
        """Report on the query until it ends, or until `stop` is set and the query was stopped."""
        try:
            ended = False
            while not ended and not stop.is_set():
                ended = bool(query.awaitTermination(POLL_INTERVAL_S))
                self.report(query, summary)
        except StreamingQueryException as error:
            if self._writer.failure is None:
                raise
            raise self._writer.failure from error
        finally:
            query.stop()
        self.report(query, summary)

    def report(self, query: StreamingQuery, summary: IngestSummary) -> None:
        """Call `on_progress` for each batch that finished since the last call."""
        for one in filter(ran_a_batch, query.recentProgress):
            counts = self._writer.take_counts(one.batchId)
            if counts is None:
                continue
            progress = Progress(
                counts.batch_id,
                counts.accepted,
                counts.rejected,
                one.durationMs.get("triggerExecution", 0),
                total_lag(one.sources),
            )
            summary.add(progress)
            self._on_progress(progress)

    def _prepare_tables(self) -> None:
        empty = empty_frame(self._spark, parse_schema(KAFKA_SOURCE_SCHEMA))
        parsed = self._parser(records(empty))
        self._table.prepare(accepted(parsed).schema)
        self._quarantine.prepare(rejected(parsed, self._options.parser).schema)

    def _has_rows(self) -> bool:
        """Return whether the table has rows, also if its history no longer has their commits."""
        return self._table.exists() and not self._table.read().isEmpty()

    def _check_tables_fit_checkpoint(self) -> None:
        """Raise PipelineError if a table or the checkpoint is lost, or belongs to another query.

        Without its checkpoint the job would write every record twice. Without a table it would
        leave a gap.
        """
        tables = self._options.tables
        done = self._checkpoint.has_finished_batch()
        last = self._table.last_commit()
        advice = "Bring it back, or ingest into another directory."
        if not self._checkpoint.exists() and (last is not None or self._has_rows()):
            raise PipelineError(
                f"{tables.path('table')} has rows, but its checkpoint {tables.checkpoint} is"
                f" missing. Without it each record would be ingested twice. {advice}"
            )
        for name, sink in (("table", self._table), ("quarantine", self._quarantine)):
            if done and not sink.exists():
                raise PipelineError(
                    f"The checkpoint {tables.checkpoint} has finished batches, but"
                    f" {tables.path(name)} is missing. Its rows would not be written again."
                    f" {advice}"
                )
        if last is not None and last.query_id != self._checkpoint.query_id():
            raise PipelineError(
                f"{tables.checkpoint} is not the checkpoint of {tables.path('table')}. {advice}"
            )
        self._checkpoint.check_plans_exist()
