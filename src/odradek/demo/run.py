"""The whole demo, with its progress on the terminal."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from odradek.demo import events, report
from odradek.demo.broker_process import running_broker
from odradek.demo.clients import LiveCounter, Streamer, count_records, create_topic
from odradek.demo.commands import CLUSTER, commands, shown
from odradek.launcher.plan import REPLICAS_MAX
from odradek.pipeline.jobs.ingest import IngestJob, IngestSummary
from odradek.pipeline.jobs.options import IngestOptions
from odradek.pipeline.session import SHORT_LIFE, SessionOptions, find_java, open_session
from odradek.pipeline.tables import TableDir, TableFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from odradek.demo.cluster_processes import DemoCluster

PARTITIONS = 4
GROUP = "demo-live-counter"
MARKER = ".odradek-demo"
CATCH_UP_TIMEOUT_S = 300
TRIGGER_INTERVAL = "1 second"
QUERY_POLL_S = 1
ACCESS_LOG_LINE = '192.0.2.7 - - [03/Mar/2026:23:59:59 +0000] "GET / HTTP/1.1" 200 1 "-" "curl/8.5"'
"""A line for the user to send after the demo."""


class DemoFailed(Exception):
    """The demo cannot continue. The message has the reason."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The events of the demo, their rate, and the output directory.

    `input_file` is an access log to stream in place of generated events. With `bootstrap_servers`
    the demo uses that broker and does not start one. With several `brokers` the demo starts a
    cluster, and kills one of its brokers when half of the events are acknowledged.
    """

    out: Path
    events: int
    input_file: Path | None = None
    seed: int = 2026
    events_per_second: int = 20_000
    bootstrap_servers: str | None = None
    brokers: int = 1

    @property
    def topic(self) -> str:
        return "access-log" if self.input_file else "usage-events"

    @property
    def tables(self) -> TableDir:
        return TableDir(str(self.out / "lake"), TableFormat.DELTA)

    def records(self) -> Iterable[tuple[bytes, bytes]]:
        """Return the records to stream as pairs of key and value."""
        if self.input_file is None:
            return events.usage_events(self.events, self.seed)
        return _log_lines(self.input_file, self.events)

    def record_count(self) -> int:
        """Return the number of records to stream."""
        if self.input_file is None:
            return self.events
        return sum(1 for _ in _log_lines(self.input_file, self.events))

    def ingest(self, bootstrap_servers: str) -> IngestOptions:
        is_log = self.input_file is not None
        return IngestOptions(
            bootstrap_servers=bootstrap_servers,
            topics=(self.topic,),
            tables=self.tables,
            parser="access-log" if is_log else "json",
            schema=None if is_log else events.SCHEMA,
            interval=TRIGGER_INTERVAL,
        )


def _log_lines(path: Path, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the first `count` lines of an access log, with the client's host as key."""
    with path.open("rb") as file:
        for _, line in zip(range(count), file, strict=False):
            text = line.rstrip(b"\r\n")
            yield text.partition(b" ")[0], text


def run_demo(options: DemoOptions, console: Console) -> bool:
    """Run the demo, and return whether the counts are equal.

    Raises:
        DemoFailed, BrokerFailed, PipelineError, KafkaException: The demo failed. The message has
            the reason.
    """
    find_java()
    _make_out_dir(options.out)
    with _broker(options, console) as (bootstrap_servers, cluster):
        replicas = min(REPLICAS_MAX, options.brokers)
        create_topic(bootstrap_servers, options.topic, PARTITIONS, replicas)
        copies = f", {replicas} replicas each" if replicas > 1 else ""
        console.print(
            f"[bold]2[/] Topic [cyan]{options.topic}[/], {PARTITIONS} partitions{copies}."
        )
        with console.status("Starting Spark (the first start downloads its packages) ..."):
            spark = _open_spark(options)
        try:
            kill = None if cluster is None else _HalfwayKill(options, cluster, console)
            sent, counted = _stream(options, bootstrap_servers, spark, console, kill)
        finally:
            spark.stop()
        console.print("[bold]5[/] Counting again, with a fresh client and a fresh Spark session.")
        in_topic = count_records(bootstrap_servers, options.topic)
        outcome = _look(options, report.Ends(sent, in_topic, counted), console)
    report.show(outcome, console)
    parser = _parser_arguments(options)
    record = events.ONE_MORE if options.input_file is None else ACCESS_LOG_LINE
    lines = commands(
        options.topic, options.out, parser, record, options.bootstrap_servers, options.brokers
    )
    report.show_next_commands(lines, console)
    return outcome.is_right


def _make_out_dir(out: Path) -> None:
    """Create `out`, or empty it if an earlier demo created it. Raise DemoFailed otherwise."""
    try:
        _make_empty(out)
    except OSError as error:
        raise DemoFailed(
            f"{error.filename or out} cannot be written: {error.strerror}. Choose another --out."
        ) from error


def _make_empty(out: Path) -> None:
    if out.exists() and any(out.iterdir()):
        if not (out / MARKER).exists():
            raise DemoFailed(
                f"{out} is not empty, and no earlier demo created it. Choose another --out."
            )
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).touch()


def _parser_arguments(options: DemoOptions) -> str:
    """Return the parser options of `odradek pipeline ingest` for the streamed records."""
    if options.input_file is not None:
        return "--parser access-log"
    schema = options.out / "schema.ddl"
    schema.write_text(f"{events.SCHEMA}\n", encoding="utf-8")
    return f"--parser json --schema {shlex.quote(f'@{shown(schema)}')}"


@contextlib.contextmanager
def _broker(options: DemoOptions, console: Console) -> Iterator[tuple[str, DemoCluster | None]]:
    """Yield the addresses of the broker or the brokers, and the demo's own cluster."""
    if options.bootstrap_servers is not None:
        console.print(f"[bold]1[/] Using the broker at [cyan]{options.bootstrap_servers}[/].")
        yield options.bootstrap_servers, None
        return
    began = time.monotonic()
    if options.brokers > 1:
        from odradek.demo.cluster_processes import running_cluster

        with running_cluster(options.out / CLUSTER, options.brokers) as cluster:
            took_s, servers = time.monotonic() - began, cluster.bootstrap_servers
            console.print(
                f"[bold]1[/] ZooKeeper and {options.brokers} brokers run at [cyan]{servers}[/]"
                f" after {took_s:.1f} s."
            )
            yield servers, cluster
        return
    with running_broker(options.out / "broker", options.out / "broker.log") as address:
        took_ms = (time.monotonic() - began) * 1000
        console.print(f"[bold]1[/] A broker runs at [cyan]{address}[/] after {took_ms:.0f} ms.")
        yield address, None


class _HalfwayKill:
    """The kill of a broker when half of the events are acknowledged."""

    def __init__(self, options: DemoOptions, cluster: DemoCluster, console: Console) -> None:
        self._topic = options.topic
        self._half = options.record_count() // 2
        self._cluster = cluster
        self._console = console
        self._is_done = False

    def tick(self, acknowledged: int) -> None:
        if self._is_done or acknowledged < self._half:
            return
        self._is_done = True
        broker_id, pid = self._cluster.kill_leader(self._topic)
        self._console.print(
            f"  [bold red]Broker {broker_id} (pid {pid}) was killed[/] with SIGKILL after"
            f" {acknowledged:,} acknowledged events."
        )


def _open_spark(options: DemoOptions) -> SparkSession:
    log = options.out / "spark.log"
    return open_session(SessionOptions("odradek demo", java_options=SHORT_LIFE, jvm_log=log))


def _stream(
    options: DemoOptions,
    bootstrap_servers: str,
    spark: SparkSession,
    console: Console,
    kill: _HalfwayKill | None,
) -> tuple[int, int]:
    """Stream, count and ingest at the same time. Return the records sent, and counted live."""
    summary = IngestSummary()
    job = IngestJob(spark, options.ingest(bootstrap_servers))
    streamer = Streamer(bootstrap_servers, options.topic)
    query = job.start()
    console.print("[bold]3[/] Spark ingests the topic into a Delta table as it fills.")
    counter = LiveCounter(bootstrap_servers, options.topic, GROUP)
    console.print(f"[bold]4[/] Streaming, while group [cyan]{GROUP}[/] counts the records:")
    try:
        with _Bars(console, options, streamer, counter, summary) as bars:

            def sending() -> None:
                bars.tick(job, query)
                if kill is not None:
                    kill.tick(streamer.acknowledged)

            sent = streamer.send_all(options.records(), options.events_per_second, sending)
            counter.wait_for(sent, CATCH_UP_TIMEOUT_S, lambda: bars.tick(job, query))
            _wait_for_table(job, query, sent, bars)
    finally:
        counter.close()
        query.stop()
        job.close()
    return sent, counter.count


def _wait_for_table(job: IngestJob, query: StreamingQuery, sent: int, bars: _Bars) -> None:
    """Wait until the table has `sent` rows. Raise StreamingQueryException if the ingest failed."""
    until = time.monotonic() + CATCH_UP_TIMEOUT_S
    while bars.in_tables < sent and time.monotonic() < until:
        if query.awaitTermination(QUERY_POLL_S):
            raise DemoFailed(
                f"The ingest ended before the table had all {sent} records. Run the demo again."
            )
        bars.tick(job, query)


class _Bars:
    """Three progress bars: acknowledged records, records counted live, and rows in the tables."""

    def __init__(
        self,
        console: Console,
        options: DemoOptions,
        streamer: Streamer,
        counter: LiveCounter,
        summary: IngestSummary,
    ) -> None:
        self._streamer = streamer
        self._counter = counter
        self._summary = summary
        count = TextColumn("{task.completed:>9,} of {task.total:,}")
        columns = (TextColumn("  {task.description:<28}"), BarColumn(40), count)
        self._progress = Progress(*columns, console=console)
        names = ("acknowledged by the broker", "counted by the live group", "in Spark's tables")
        total = options.record_count()
        self._tasks: list[TaskID] = [self._progress.add_task(name, total=total) for name in names]

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._progress.stop()

    @property
    def in_tables(self) -> int:
        return self._summary.accepted + self._summary.rejected

    def tick(self, job: IngestJob, query: StreamingQuery) -> None:
        job.report(query, self._summary)
        done = (self._streamer.acknowledged, self._counter.count, self.in_tables)
        for task, count in zip(self._tasks, done, strict=True):
            self._progress.update(task, completed=count)


def _look(options: DemoOptions, ends: report.Ends, console: Console) -> report.Outcome:
    from odradek.demo import plot, results

    with console.status("Querying the table ..."):
        spark = _open_spark(options)
        try:
            view = results.access_log_view() if options.input_file else results.usage_view()
            counts = results.count_rows(spark, options.tables)
            reasons = results.quarantine_reasons(spark, options.tables)
            traffic = results.traffic(spark, options.tables, view)
        finally:
            spark.stop()
    picture = options.out / "traffic.png"
    subtitle = f"{counts.table:,} {view.title.lower()} of topic {options.topic} in Spark's table,"
    subtitle += " over time (UTC)"
    plot.save_plot(traffic, view.title, subtitle, picture)
    return report.Outcome(ends, counts, reasons, traffic.top_pages, picture)
