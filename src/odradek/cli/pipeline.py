"""`odradek pipeline`: Spark jobs that ingest topics into tables, and SQL on these tables."""

from __future__ import annotations

import threading
from pathlib import Path
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
from odradek.cli.pipeline_ledger import ledger
from odradek.cli.pipeline_run import run
from odradek.cli.spark import (
    TOO_MANY_REJECTS,
    MasterOption,
    need_spark,
    report,
    stop_on_signals,
)

if TYPE_CHECKING:
    from odradek.pipeline.jobs.options import IngestOptions
    from odradek.pipeline.progress import Progress
    from odradek.pipeline.session import SessionOptions
    from odradek.pipeline.tables import TableDir

app = typer.Typer(no_args_is_help=True)


@app.callback()
def pipeline() -> None:
    """Ingest topics into tables with Spark."""


app.command("ledger")(ledger)
app.command("run")(run)


TableDirOption = Annotated[
    str, typer.Option(metavar="DIR", help="Directory of table, quarantine and checkpoint.")
]
FormatOption = Annotated[
    str, typer.Option("--format", help="Format of the table: delta, iceberg, parquet.")
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        metavar="DDL|@FILE", help='Schema for json, such as "id BIGINT NOT NULL, at TIMESTAMP".'
    ),
]
OnceOption = Annotated[bool, typer.Option("--once", help="Ingest the existing records, then end.")]
StartingOption = Annotated[
    str,
    typer.Option(
        metavar="WHERE",
        help="Start of a new ingest: earliest, latest or Spark's JSON of offsets.",
    ),
]
BatchRowsOption = Annotated[
    int, typer.Option(metavar="N", min=1, help="Largest number of offsets in a batch.")
]
AcceptLossOption = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="Skip records that the topic no longer has, and write their offsets to the ledger.",
    ),
]
KafkaOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A config of Kafka's Java consumer; repeatable."),
]
SparkConfOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting of Spark; repeatable."),
]

RejectsOption = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        min=0,
        max=1,
        help="Largest share of rejected records in a batch. Above it: exit code 3.",
    ),
]
RebuildOption = Annotated[
    bool,
    typer.Option(
        "--rebuild-checkpoint",
        help="Replace the checkpoint, and continue at the end of the ledger.",
    ),
]
GroupOption = Annotated[
    str | None,
    typer.Option(metavar="GROUP", help="Group to which the end of each batch is committed."),
]


@app.command("ingest")
def ingest(
    topics: Annotated[str, typer.Option(metavar="T[,T]", help="Topics to read.")],
    table_dir: TableDirOption,
    format_: FormatOption = "delta",
    parser: Annotated[str, typer.Option(help="Parser: raw, json or access-log.")] = "raw",
    schema: SchemaOption = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    once: OnceOption = False,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="Time between the starts of batches.")
    ] = "10 seconds",
    starting: StartingOption = "earliest",
    batch_rows: BatchRowsOption = 500_000,
    rejects_max: RejectsOption = 1.0,
    accept_loss: AcceptLossOption = False,
    rebuild_checkpoint: RebuildOption = False,
    allow_data_loss: Annotated[bool, typer.Option("--allow-data-loss", hidden=True)] = False,
    group: GroupOption = None,
    kafka_option: KafkaOption = None,
    master: MasterOption = "local[2]",
    driver_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Heap size of Spark's driver.")
    ] = "1g",
    spark_conf: SparkConfOption = None,
) -> None:
    """Ingest topics into a table, each record exactly once.

    Records that the parser rejects go to DIR/quarantine with reason and raw bytes. A later run with
    the same DIR continues where the last one ended.
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
        rejects_max=rejects_max,
        accept_loss=accept_loss or allow_data_loss,
        rebuild_checkpoint=rebuild_checkpoint,
        group=group,
        kafka=parse_assignments(kafka_option or [], "--kafka-option"),
    )
    _check(options)
    if allow_data_loss:
        report("--allow-data-loss has been renamed and will be removed. Use --accept-loss.")
    session = SessionOptions(
        app_name="odradek pipeline ingest",
        jvm_log=None if "://" in table_dir else Path(table_dir).absolute() / "spark.log",
        master=master,
        driver_memory=driver_memory,
        iceberg=options.tables.format == "iceberg",
        extra=parse_assignments(spark_conf or [], "--spark-conf"),
    )
    # With --kafka-option the broker may require settings that only the JVM's client has.
    if not options.kafka:
        _check_topics(options)
    _run(options, session)


@app.command("sql")
def sql(
    query: Annotated[str, typer.Argument(help="A query of the views t and quarantine.")],
    table_dir: Annotated[str, typer.Option(metavar="DIR", help="The --table-dir of the ingest.")],
    format_: FormatOption = "delta",
    as_json: JsonOutput = False,
    rows: Annotated[int, typer.Option(min=1, help="Largest number of rows to print.")] = 1000,
    master: MasterOption = "local[2]",
) -> None:
    """Query an ingest's tables with Spark SQL."""
    need_spark()
    from pyspark.errors import AnalysisException

    from odradek.pipeline.errors import PipelineError
    from odradek.pipeline.session import SHORT_LIFE, SessionOptions, open_session

    tables = _table_dir(table_dir, format_)
    log = None
    if "://" not in table_dir:
        if not Path(tables.root).is_dir():
            raise CommandError(
                f"--table-dir: {table_dir} is not a directory. Use the --table-dir of the ingest."
            )
        log = Path(tables.root) / "spark.log"
    try:
        spark = open_session(
            SessionOptions(
                "odradek pipeline sql",
                master=master,
                java_options=SHORT_LIFE,
                jvm_log=log,
                iceberg=format_ == "iceberg",
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


def _check(options: IngestOptions) -> None:
    if not options.topics:
        raise CommandError("--topics names no topic. Name one or more, separated by commas.")
    from odradek.pipeline.errors import PipelineError
    from odradek.pipeline.jobs.checks import check_options

    try:
        check_options(options)
    except PipelineError as error:
        raise CommandError(str(error)) from None


def _check_topics(options: IngestOptions) -> None:
    """Raise CommandError for an unreachable broker or a missing topic before Spark starts."""
    metadata = admin_client(options.bootstrap_servers).list_topics(timeout=REQUEST_TIMEOUT_S)
    for topic in options.topics:
        if topic not in metadata.topics:
            raise CommandError(
                f"Topic '{topic}' does not exist at {options.bootstrap_servers}."
                f" Create it with `odradek topic create {topic}`."
            )


def _plain(value: object) -> object:
    """Convert a Spark value for JSON: bytes to text, times to ISO 8601."""
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
        raise CommandError("--table-dir is empty. Name the directory of the tables.")
    if format_ not in tuple(TableFormat):
        raise CommandError(f"--format is delta, iceberg or parquet, not {format_!r}.")
    return TableDir(_absolute(table_dir), TableFormat(format_))


def _absolute(table_dir: str) -> str:
    return table_dir if "://" in table_dir else str(Path(table_dir).absolute())


def _read_schema(schema: str | None) -> str | None:
    if schema is None or not schema.startswith("@"):
        return schema
    try:
        return Path(schema[1:]).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise CommandError(
            f"The schema file {schema[1:]} cannot be read: {error.strerror}. Check --schema."
        ) from None


def _run(options: IngestOptions, session: SessionOptions) -> None:
    from odradek.pipeline.errors import PipelineError, TooManyRejects
    from odradek.pipeline.session import open_session

    stop = stop_on_signals()
    report(f"starting Spark on {session.master} (the first start downloads its packages) ...")
    try:
        spark = open_session(session)
        try:
            _ingest(options, spark, stop)
        finally:
            spark.stop()
    except TooManyRejects as error:
        raise CommandError(str(error), TOO_MANY_REJECTS) from None
    except PipelineError as error:
        raise CommandError(str(error)) from None


def _ingest(options: IngestOptions, spark: object, stop: threading.Event) -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    from odradek.pipeline.jobs.ingest import IngestJob

    assert isinstance(spark, SparkSession)
    job = IngestJob(spark, options, on_progress=_show)
    topics = ", ".join(options.topics)
    report(f"{topics} at {options.bootstrap_servers} -> {options.tables.path('table')}")
    try:
        summary = job.run(stop)
    except StreamingQueryException as error:
        raise CommandError(
            f"The ingest into {options.tables.root} failed: {_first_line(error)} The next start"
            " with this --table-dir continues at the checkpoint."
        ) from error
    report(
        f"done: {summary.accepted:,} rows to the table and {summary.rejected:,} to the quarantine"
        f" in {summary.batches:,} batches"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _show(progress: Progress) -> None:
    report(progress.text())
