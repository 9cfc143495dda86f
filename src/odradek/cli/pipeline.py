"""`odradek pipeline`: Spark jobs that carry topics into tables."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.cli.client import (
    DEFAULT_BOOTSTRAP_SERVER,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    JsonOutput,
    admin_client,
)
from odradek.cli.output import CommandError, parse_assignments, print_rows

if TYPE_CHECKING:
    from odradek.pipeline.jobs.options import IngestOptions
    from odradek.pipeline.progress import Progress
    from odradek.pipeline.session import SessionOptions
    from odradek.pipeline.tables import TableDir

app = typer.Typer(no_args_is_help=True)


@app.callback()
def pipeline() -> None:
    """Carry topics into tables with Spark."""


TableDirOption = Annotated[
    str, typer.Option(metavar="DIR", help="Where table, quarantine and checkpoint are kept.")
]
FormatOption = Annotated[str, typer.Option("--format", help="delta or parquet.")]
MasterOption = Annotated[str, typer.Option(metavar="URL", help="Spark's master.")]
SchemaOption = Annotated[
    str | None,
    typer.Option(metavar="DDL|@FILE", help='For json: "id BIGINT NOT NULL, at TIMESTAMP".'),
]
OnceOption = Annotated[bool, typer.Option("--once", help="Ingest what is there now, then end.")]
StartingOption = Annotated[
    str,
    typer.Option(metavar="WHERE", help="First start: earliest, latest or Spark's offsets JSON."),
]
BatchRowsOption = Annotated[
    int, typer.Option(metavar="N", min=1, help="A batch takes at most N offsets.")
]
DataLossOption = Annotated[
    bool, typer.Option("--allow-data-loss", help="Pass over what the topic no longer has.")
]
KafkaOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="A config of Kafka's Java consumer.")
]
SparkConfOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Any of Spark's settings.")
]


@app.command("ingest")
def ingest(
    topics: Annotated[str, typer.Option(metavar="T[,T]", help="The topics to read.")],
    table_dir: TableDirOption,
    format_: FormatOption = "delta",
    parser: Annotated[str, typer.Option(help="raw, json or access-log.")] = "raw",
    schema: SchemaOption = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    once: OnceOption = False,
    interval: Annotated[str, typer.Option(metavar="TIME", help="Start a batch this often.")] = (
        "10 seconds"
    ),
    starting: StartingOption = "earliest",
    batch_rows: BatchRowsOption = 500_000,
    allow_data_loss: DataLossOption = False,
    kafka_option: KafkaOption = None,
    master: MasterOption = "local[2]",
    driver_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="The heap of Spark's driver.")
    ] = "1g",
    spark_conf: SparkConfOption = None,
) -> None:
    """Ingest topics into a table, each record exactly once.

    What the parser cannot read goes to DIR/quarantine with its reason and raw bytes. Run it again
    with the same DIR and it goes on where it ended.
    """
    need_spark()
    from odradek.pipeline.jobs.options import IngestOptions
    from odradek.pipeline.session import SessionOptions

    options = IngestOptions(
        bootstrap_servers=bootstrap_server,
        topics=tuple(topic.strip() for topic in topics.split(",") if topic.strip()),
        tables=_table_dir(table_dir, format_),
        parser=parser,
        schema=_read_schema(schema),
        starting=starting,
        once=once,
        interval=interval,
        offsets_per_trigger_max=batch_rows,
        fail_on_data_loss=not allow_data_loss,
        kafka=parse_assignments(kafka_option or [], "--kafka-option"),
    )
    if not options.topics:
        raise CommandError("--topics names no topic")
    _check(options)
    session = SessionOptions(
        app_name="odradek pipeline ingest",
        jvm_log=None if "://" in table_dir else Path(table_dir).absolute() / "spark.log",
        master=master,
        driver_memory=driver_memory,
        extra=parse_assignments(spark_conf or [], "--spark-conf"),
    )
    if not options.kafka:  # else the broker may want what only the JVM's client was told
        _check_topics(options)
    _run(options, session)


@app.command("sql")
def sql(
    query: Annotated[str, typer.Argument(help="The table is t, the quarantine is quarantine.")],
    table_dir: Annotated[str, typer.Option(metavar="DIR", help="As given to ingest.")],
    format_: FormatOption = "delta",
    as_json: JsonOutput = False,
    rows: Annotated[int, typer.Option(min=1, help="Print at most so many rows.")] = 1000,
    master: MasterOption = "local[2]",
) -> None:
    """Ask an ingest's tables with Spark SQL."""
    need_spark()
    from pyspark.errors import AnalysisException

    from odradek.pipeline.errors import PipelineError
    from odradek.pipeline.session import SHORT_LIFE, SessionOptions, open_session

    tables = _table_dir(table_dir, format_)
    log = None
    if "://" not in table_dir:
        if not Path(tables.root).is_dir():
            raise CommandError(f"{table_dir} is no directory")
        log = Path(tables.root) / "spark.log"
    try:
        spark = open_session(
            SessionOptions(
                "odradek pipeline sql", master=master, java_options=SHORT_LIFE, jvm_log=log
            )
        )
        try:
            tables.create_views(spark)
            result = spark.sql(query)
            taken = [row.asDict(recursive=True) for row in result.take(rows)]
            found = [{name: _plain(one) for name, one in row.items()} for row in taken]
            print_rows(found, result.columns, as_json)
        finally:
            spark.stop()
    except PipelineError as error:
        raise CommandError(str(error)) from None
    except AnalysisException as error:
        raise CommandError(_first_line(error)) from None


def need_spark(*more: str) -> None:
    """Refuses when PySpark, Delta or one of the packages `more` is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "delta", *more) if find_spec(name) is None]
    if missing:
        is_or_are = "is" if len(missing) == 1 else "are"
        raise CommandError(
            f"{', '.join(missing)} {is_or_are} missing: pip install 'odradek[spark]'"
        )


def _check(options: IngestOptions) -> None:
    from odradek.pipeline.errors import PipelineError
    from odradek.pipeline.jobs.checks import check_options

    try:
        check_options(options)
    except PipelineError as error:
        raise CommandError(str(error)) from None


def _check_topics(options: IngestOptions) -> None:
    """Says at once what Spark would say in a minute: no broker, or no such topic."""
    metadata = admin_client(options.bootstrap_servers).list_topics(timeout=REQUEST_TIMEOUT_S)
    for topic in options.topics:
        if topic not in metadata.topics:
            raise CommandError(
                f"there is no topic {topic} at {options.bootstrap_servers};"
                f" make it with `odradek topic create {topic}`"
            )


def _plain(value: object) -> object:
    """A value of Spark's as JSON has it: bytes as text, times in ISO 8601."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="backslashreplace")
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _table_dir(table_dir: str, format_: str) -> TableDir:
    from odradek.pipeline.tables import TableDir, TableFormat

    if not table_dir:
        raise CommandError("--table-dir names no directory")
    if format_ not in tuple(TableFormat):
        raise CommandError(f"--format is delta or parquet, not {format_!r}")
    return TableDir(_absolute(table_dir), TableFormat(format_))


def _absolute(table_dir: str) -> str:
    return table_dir if "://" in table_dir else str(Path(table_dir).absolute())


def _read_schema(schema: str | None) -> str | None:
    if schema is None or not schema.startswith("@"):
        return schema
    try:
        return Path(schema[1:]).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise CommandError(f"{schema[1:]}: {error.strerror}") from None


def _run(options: IngestOptions, session: SessionOptions) -> None:
    from odradek.pipeline.errors import PipelineError
    from odradek.pipeline.session import open_session

    stop = _stop_on_signals()
    _say(f"starting Spark on {session.master} (the first start downloads its packages) ...")
    try:
        spark = open_session(session)
        try:
            _ingest(options, spark, stop)
        finally:
            spark.stop()
    except PipelineError as error:
        raise CommandError(str(error)) from None


def _ingest(options: IngestOptions, spark: object, stop: threading.Event) -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    from odradek.pipeline.jobs.ingest import IngestJob

    assert isinstance(spark, SparkSession)
    job = IngestJob(spark, options, on_progress=_show)
    topics = ", ".join(options.topics)
    _say(f"{topics} at {options.bootstrap_servers} -> {options.tables.path('table')}")
    try:
        summary = job.run(stop)
    except StreamingQueryException as error:
        raise CommandError(f"the ingest failed: {_first_line(error)}") from error
    _say(
        f"done: {summary.accepted:,} rows to the table and {summary.rejected:,} to the quarantine"
        f" in {summary.batches:,} batches"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    return stop


def _show(progress: Progress) -> None:
    _say(progress.text())


def _say(text: str) -> None:
    print(f"odradek: {text}", file=sys.stderr, flush=True)
