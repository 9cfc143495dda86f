"""`odradek pipeline ledger`: the offsets that an ingest has loaded, gaps and overlaps."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.client import JsonOutput
from odradek.cli.output import CommandError, parse_assignments, print_json, print_rows
from odradek.cli.spark import need_spark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from odradek.pipeline.ledger.report import Line, TopicBounds
    from odradek.pipeline.ledger.state import LedgerState
    from odradek.pipeline.progress import Offsets


def ledger(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The --table-dir of the ingest.")],
    as_json: JsonOutput = False,
    bootstrap_server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Compare with the topics of this broker."),
    ] = None,
    kafka_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A config of Kafka's Java client; repeatable."),
    ] = None,
    master: Annotated[str, typer.Option(metavar="URL", help="Master URL of Spark.")] = "local[2]",
) -> None:
    """Show the offsets that an ingest has loaded, by topic and partition.

    Gaps and overlaps are named on standard error. With a broker, so are offsets that a topic
    removed before they were loaded, and topics that were created again or belong to another
    cluster. The exit code is 1 if there is any of them.
    """
    need_spark()
    from odradek.pipeline.errors import PipelineError
    from odradek.pipeline.session import SHORT_LIFE, SessionOptions, open_session

    root = directory if "://" in directory else str(Path(directory).absolute())
    if "://" not in directory and not Path(root).is_dir():
        raise CommandError(f"{directory} is not a directory. Name the --table-dir of the ingest.")
    log = None if "://" in directory else Path(root) / "spark.log"
    settings = parse_assignments(kafka_option or [], "--kafka-option")
    options = SessionOptions(
        "odradek pipeline ledger",
        master=master,
        java_options=SHORT_LIFE,
        jvm_log=log,
        iceberg="://" in directory or (Path(root) / "table" / "metadata").is_dir(),
    )
    try:
        spark = open_session(options)
        try:
            lines = _lines(spark, root, bootstrap_server, settings)
        finally:
            spark.stop()
    except PipelineError as error:
        raise CommandError(str(error)) from None
    _print(lines, as_json)


def _lines(
    spark: SparkSession, root: str, bootstrap_server: str | None, settings: Mapping[str, str]
) -> list[Line]:
    from odradek.pipeline.checkpoint import Checkpoint
    from odradek.pipeline.errors import PipelineError
    from odradek.pipeline.ledger.report import report
    from odradek.pipeline.sinks.files import HadoopFiles
    from odradek.pipeline.tables import TableDir

    tables = TableDir.find(spark, root)
    store = tables.store(spark, "table")
    store.load()
    if bootstrap_server is None:
        return report(store.state)
    known: Offsets = {}
    with suppress(PipelineError):  # the ledger of a torn checkpoint is shown too
        known = Checkpoint(HadoopFiles(spark), tables.checkpoint).known_offsets()
    return report(store.state, _bounds(spark, bootstrap_server, settings, store.state, known))


def _bounds(
    spark: SparkSession,
    bootstrap_server: str,
    settings: Mapping[str, str],
    state: LedgerState,
    known: Offsets,
) -> TopicBounds:
    from odradek.pipeline.kafka_admin import KafkaAdmin
    from odradek.pipeline.ledger.report import TopicBounds
    from odradek.pipeline.ledger.verdicts import next_starts

    admin = KafkaAdmin(spark, bootstrap_server, settings)
    try:
        sources = admin.sources(sorted(state.sources))
        partitions = [(topic, one) for topic in sources for one in admin.partitions(topic)]
        starts = next_starts(state.next_offsets(), known, partitions) if known else {}
        return TopicBounds(sources, admin.earliest(partitions), admin.ends(partitions), starts)
    finally:
        admin.close()


def _print(lines: list[Line], as_json: bool) -> None:
    from odradek.pipeline.ledger.report import COLUMNS, problem_texts

    if as_json:
        print_json([one.fields() for one in lines])
    else:
        print_rows([one.row() for one in lines], COLUMNS, as_json=False)
    problems = problem_texts(lines)
    for text in problems:
        print(f"odradek: {text}", file=sys.stderr)
    if problems:
        raise typer.Exit(1)
