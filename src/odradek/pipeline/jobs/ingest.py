"""Ingest of topics into a table and its quarantine, each record exactly once.

Spark's checkpoint fixes a batch's offsets before the batch runs and records the batch as done after
it. In between the batch may run any number of times. The tables make each of their two commits once
for a (query id, batch id), so they hold each record once. Tables and checkpoint must stay together.
`IngestJob` refuses to start if one of them was lost or exchanged. It stops if the checkpoint plans
a batch with other offsets than the tables have for it. It also stops if a topic is not the topic of
the ledger, or if another driver owns the directory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.empty import empty_frame
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.batch_writer import BatchWriter
from odradek.pipeline.jobs.checks import check_parser
from odradek.pipeline.jobs.directory import OwnedDirectory
from odradek.pipeline.jobs.options import IngestOptions
from odradek.pipeline.jobs.rebuild import range_options, rebuild
from odradek.pipeline.ledger.commits import PlannedRange
from odradek.pipeline.ledger.owner import LinuxProcesses, Processes
from odradek.pipeline.progress import Progress, ran_a_batch, total_lag
from odradek.pipeline.sinks.files import HadoopFiles
from odradek.pipeline.transforms.access_log import parse_access_log
from odradek.pipeline.transforms.expectations import Condition, with_expectations
from odradek.pipeline.transforms.json import json_parser
from odradek.pipeline.transforms.quarantine import accepted, rejected
from odradek.pipeline.transforms.raw import Parser, parse_raw, records

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

logger = logging.getLogger(__name__)

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


def checked_parser(parser: Parser, expectations: tuple[Condition, ...]) -> Parser:
    """Return a parser whose records also have the results of expectations, if there are any."""
    if not expectations:
        return parser
    return lambda rows: with_expectations(parser(rows), expectations)


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

    `start` returns once the query runs, and `close` ends the job. `run` starts the query, follows
    it to its end, and calls `on_progress` on the caller's thread for each batch.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: IngestOptions,
        *,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        processes: Processes | None = None,
    ) -> None:
        self._spark = spark
        self._options = options
        self._on_progress = on_progress
        self._processes = processes or LinuxProcesses()
        self._parser = checked_parser(
            make_parser(options.parser, options.schema), options.expectations
        )
        self._checkpoint = Checkpoint(HadoopFiles(spark), options.tables.checkpoint)
        self._opened: OwnedDirectory | None = None
        self._writer: BatchWriter | None = None

    def start(self) -> StreamingQuery:
        """Claim the directory, check it, create missing tables, and start the query.

        Raises:
            PipelineError: Tables, checkpoint and topics do not belong together, or another driver
                owns the directory.
        """
        self._open()
        writer = self._writer_of_stream()
        if self._options.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=self._options.interval).start()

    def close(self) -> None:
        """Release the directory. Stop the query before. May be called again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def run(self, stop: threading.Event | None = None) -> IngestSummary:
        """Run to the end of the topics (`once`), or until `stop` is set or the query fails.

        Raises:
            PipelineError: As `start`, or the tables have a batch with other offsets than the
                checkpoint plans for it.
            StreamingQueryException: The query failed for another reason.
        """
        summary = IngestSummary()
        stop = stop or threading.Event()
        try:
            self._open()
            if self._options.once and self._checkpoint.has_unfinished_batch():
                # The available-now trigger refuses an unfinished batch if partitions were added to
                # the topic since (KafkaMicroBatchStream compares the batch's partitions with the
                # topic's).
                writer = self._writer_of_stream()
                self._follow(writer.trigger(once=True).start(), summary, stop)
            if not stop.is_set():
                self._follow(self.start(), summary, stop)
        finally:
            self.close()
        return summary

    def _open(self) -> OwnedDirectory:
        """Claim the directory and check it, if this job has not done so yet."""
        if self._opened is not None:
            return self._opened
        opened = OwnedDirectory(self._spark, self._options, self._processes)
        try:
            opened.open(
                self._checkpoint,
                lambda: self._prepare_tables(opened),
                (lambda: self._rebuild(opened)) if self._options.rebuild_checkpoint else None,
            )
        except BaseException:
            opened.close()
            raise
        self._writer = BatchWriter(
            self._parser,
            self._options.parser,
            opened.table,
            opened.quarantine,
            self._checkpoint,
            opened.guard,
            opened.owner.epoch,
            {one.name: one.on_failure for one in self._options.expectations},
            self._options.rejects_max,
            lambda offsets: self._publish_lag(opened, offsets),
            opened.admin.earliest if self._options.accept_loss else None,
        )
        self._opened = opened
        return opened

    def _publish_lag(self, opened: OwnedDirectory, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit the end offsets of a batch to the group. The tables do not need them."""
        group = self._options.group
        if group is None:
            return
        try:
            opened.admin.commit_offsets(group, offsets)
        except PipelineError as error:
            logger.warning("The lag of %s is not up to date: %s", self._options.tables.root, error)

    def _rebuild(self, opened: OwnedDirectory) -> None:
        rebuild(
            opened.table,
            opened.quarantine,
            HadoopFiles(self._spark),
            self._options.tables.checkpoint,
            self._options.topics,
            opened.owner.epoch,
            self._read_rejected,
        )

    def _read_rejected(self, planned: tuple[PlannedRange, ...]) -> DataFrame:
        """Return the quarantine's rows of planned offsets, read from the topics."""
        source_options = self._options.source_options(lambda topic: ())  # it starts at the ranges
        options = {**source_options, **range_options(planned)}
        for name in ("subscribe", "maxOffsetsPerTrigger"):
            del options[name]
        options.pop("startingTimestamp", None)
        source = self._spark.read.format("kafka").options(**options).load()
        return rejected(self._parser(records(source)), self._options.parser)

    def _source_options(self) -> dict[str, str]:
        assert self._opened is not None, "the directory is opened before its source"
        return self._options.source_options(self._opened.admin.partitions)

    def _writer_of_stream(self) -> DataStreamWriter:
        assert self._writer is not None
        options = self._options
        source = self._spark.readStream.format("kafka").options(**self._source_options()).load()
        writer = source.writeStream.foreachBatch(self._writer)
        writer = writer.option("checkpointLocation", options.tables.checkpoint)
        return writer.queryName(f"{','.join(options.topics)} to {options.tables.root}")

    def _follow(self, query: StreamingQuery, summary: IngestSummary, stop: threading.Event) -> None:
        """Report on the query until it ends, or until `stop` is set and the query was stopped."""
        try:
            ended = False
            while not ended and not stop.is_set():
                ended = bool(query.awaitTermination(POLL_INTERVAL_S))
                self.report(query, summary)
        except StreamingQueryException as error:
            assert self._writer is not None and self._opened is not None
            if self._writer.failure is not None:
                raise self._writer.failure from error
            self._opened.check_topics(self._checkpoint)
            raise
        finally:
            query.stop()
        self.report(query, summary)

    def report(self, query: StreamingQuery, summary: IngestSummary) -> None:
        """Call `on_progress` for each batch that finished since the last call."""
        assert self._writer is not None
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

    def _prepare_tables(self, opened: OwnedDirectory) -> None:
        empty = empty_frame(self._spark, parse_schema(KAFKA_SOURCE_SCHEMA))
        parsed = self._parser(records(empty))
        opened.table.prepare(accepted(parsed).schema)
        opened.quarantine.prepare(rejected(parsed, self._options.parser).schema)
