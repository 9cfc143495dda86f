"""`odradek pipeline run`: all tables of a definition in one driver."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.output import CommandError, print_rows
from odradek.cli.spark import (
    EXPECTATION_FAILED,
    TOO_MANY_REJECTS,
    MasterOption,
    need_spark,
    report,
    stop_on_signals,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.pipeline.definition.model import PipelineDefinition
    from odradek.pipeline.jobs.options import IngestOptions
    from odradek.pipeline.jobs.pipeline_run import PipelineRun, TableJob
    from odradek.pipeline.operation.status import TableStatus
    from odradek.pipeline.progress import Progress

PLAN_COLUMNS = ("table", "topics", "format", "value", "start", "directory")


def run(
    file: Annotated[Path, typer.Argument(help="The definition, a YAML file.")],
    once: Annotated[
        bool, typer.Option("--once", help="Ingest the existing records, then end.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the definition, print its tables, and end.")
    ] = False,
    master: MasterOption = "local[2]",
    driver_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Heap size of Spark's driver.")
    ] = "1g",
) -> None:
    """Ingest topics into all tables of a definition, each record exactly once.

    A table that fails for good does not stop the others. The exit code is then 1 at the end, 3 if a
    batch had too many rejected records, and 4 if it did not meet an expectation.
    """
    need_spark()
    from odradek.pipeline.definition.expansion import ingests_of
    from odradek.pipeline.definition.loading import load_definition
    from odradek.pipeline.errors import PipelineError

    try:
        definition = load_definition(file, os.environ)
        ingests = ingests_of(definition, once=once)
        if dry_run:
            print_rows([_plan(name, one) for name, one in ingests.items()], PLAN_COLUMNS, False)
            return
        statuses = _run(definition, ingests, master, driver_memory)
    except PipelineError as error:
        raise CommandError(str(error)) from None
    _report_end(statuses)


def _plan(name: str, options: IngestOptions) -> dict[str, object]:
    start = "offsets" if options.starting_offsets else options.starting
    return {
        "table": name,
        "topics": ", ".join(options.topics),
        "format": options.tables.format.value,
        "value": options.parser,
        "start": start if options.starting_time_ms is None else "a time",
        "directory": options.tables.root,
    }


def _run(
    definition: PipelineDefinition,
    ingests: Mapping[str, IngestOptions],
    master: str,
    driver_memory: str,
) -> Mapping[str, TableStatus]:
    from odradek.pipeline.jobs.pipeline_run import PipelineRun
    from odradek.pipeline.session import SessionOptions, open_session

    directory = definition.directory
    session = SessionOptions(
        app_name=f"odradek pipeline {definition.name}",
        jvm_log=None if "://" in directory else Path(directory).absolute() / "spark.log",
        master=master,
        driver_memory=driver_memory,
        iceberg=any(one.tables.format == "iceberg" for one in ingests.values()),
        extra={"spark.scheduler.mode": "FAIR", **definition.spark},
    )
    stop = stop_on_signals()
    report(f"starting Spark on {master} (the first start downloads its packages) ...")
    spark = open_session(session)
    try:
        pipeline = PipelineRun(
            tuple(ingests),
            lambda table, on_progress: _job(spark, ingests[table], on_progress),
            time.monotonic,
            lambda call, table: _thread(spark, call, table),
            lambda table, progress: report(f"{table}: {progress.text()}"),
        )
        with _monitored(definition, pipeline):
            return pipeline.run(stop)
    finally:
        spark.stop()


@contextmanager
def _monitored(definition: PipelineDefinition, pipeline: PipelineRun) -> Iterator[None]:
    """Serve /metrics and /health in the block, if the definition has an address for them."""
    from odradek.pipeline.operation.monitoring import Monitoring

    if definition.listen_address is None:
        yield
        return
    host, port = definition.listen_address
    monitoring = Monitoring(pipeline.statuses, host, port)
    monitoring.start()
    report(f"serving http://{host}:{monitoring.port}/metrics and /health")
    try:
        yield
    finally:
        monitoring.close()


def _job(
    spark: SparkSession, options: IngestOptions, on_progress: Callable[[Progress], None]
) -> TableJob:
    from odradek.pipeline.jobs.ingest import IngestJob

    return IngestJob(spark, options, on_progress=on_progress)


def _thread(spark: SparkSession, call: Callable[[], None], table: str) -> threading.Thread:
    """Return a thread whose jobs share the processors fairly with those of the other tables."""

    def run() -> None:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", table)
        call()

    return threading.Thread(target=run, name=f"table {table}")


def _report_end(statuses: Mapping[str, TableStatus]) -> None:
    """Print a line for each table, and raise CommandError if one has failed for good."""
    for table, status in statuses.items():
        if status.failure is None:
            report(
                f"{table}: done, {status.accepted:,} rows to the table and {status.rejected:,} to"
                f" the quarantine in {status.batches:,} batches"
            )
    failed = {table: one for table, one in statuses.items() if one.failure is not None}
    if failed:
        lines = [f"Table {table} has failed: {one.problem}" for table, one in failed.items()]
        raise CommandError("\n".join(lines), max(map(_exit_code, failed.values())))


def _exit_code(status: TableStatus) -> int:
    from odradek.pipeline.errors import ExpectationFailed, TooManyRejects

    if isinstance(status.failure, ExpectationFailed):
        return EXPECTATION_FAILED
    return TOO_MANY_REJECTS if isinstance(status.failure, TooManyRejects) else 1
