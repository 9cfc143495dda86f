"""The ledger of real ingests: identities, lost records, older copies, and the cost of a start."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.cli.pipeline_ledger import _lines
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.ingest import IngestJob
from odradek.pipeline.ledger.commits import BatchCommit, PlannedRange
from odradek.pipeline.ledger.report import problem_texts
from odradek.pipeline.ledger.state import Span
from odradek.pipeline.ledger.store import SEGMENT_COMMITS
from odradek.pipeline.sinks.commit import commits_of
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.files import HadoopFiles
from odradek.pipeline.tables import TableDir, TableFormat
from tests.pipeline import ledger
from tests.pipeline.commits import write
from tests.pipeline.jobs.test_ingest import check, options_for
from tests.pipeline.sinks.test_sinks import commit_of, in_table, numbers, open_table
from tests.pipeline.steps import Step, TableDirWithSteps
from tests.pipeline.test_restored_checkpoint import rewrite
from tests.pipeline.test_silent_losses import delete_topic, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.pipeline.jobs.options import IngestOptions

MakeTableDir = Callable[[TableFormat], TableDir]
FORMATS = list(TableFormat)
DAYS_S = 86_400


def offsets_in(spark: SparkSession, options: IngestOptions) -> list[int]:
    rows = [row for rows in ledger.read_tables(spark, options.tables) for row in rows]
    return sorted(location.offset for location, _ in rows)


@pytest.mark.parametrize("table_format", FORMATS)
def test_commits_have_the_ids_that_another_client_sees(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    IngestJob(spark, options).run()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    described = admin.describe_topics(TopicCollection([topic]))[topic]
    base64 = str(described.result(ledger.REQUEST_TIMEOUT_S).topic_id)
    topic_id = base64.replace("+", "-").replace("/", "_")  # as Java prints it
    cluster_id = admin.describe_cluster().result(ledger.REQUEST_TIMEOUT_S).cluster_id
    for sink in (options.tables.table(spark), options.tables.quarantine(spark)):
        [commit] = commits_of(sink)
        assert (commit.cluster_id, commit.topic_ids) == (cluster_id, {topic: topic_id})
        assert (commit.epoch, commit.planned) == (1, (PlannedRange(topic, 0, 0, 10),))


def test_records_removed_before_their_load_stop_the_job_until_the_loss_is_accepted(
    spark: SparkSession, bootstrap_servers: str, topic: str, table_dir: MakeTableDir
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    IngestJob(spark, options).run()
    ledger.produce(bootstrap_servers, topic, range(10, 40), 1)
    cut(bootstrap_servers, topic, 0, 30)
    refused(spark, options, f"{topic}-0 has removed the offsets 10 to 29 .*--accept-loss")
    lines = _lines(spark, options.tables.root, bootstrap_servers, {})
    assert problem_texts(lines) == [f"{topic}-0: offsets 10 to 29 removed before the load"]

    IngestJob(spark, replace(options, accept_loss=True)).run()
    ledger.produce(bootstrap_servers, topic, range(40, 50), 1)
    IngestJob(spark, options).run()
    assert offsets_in(spark, options) == [*range(10), *range(30, 50)]
    [line] = _lines(spark, options.tables.root, bootstrap_servers, {})
    assert line.state.losses.newest == (Span(10, 30),)
    assert (line.state.rows, line.lag, line.problems) == (30, 0, ())


def cut(bootstrap_servers: str, topic: str, partition: int, offset: int) -> None:
    """Remove the records of a partition before an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    before = TopicPartition(topic, partition, offset)
    admin.delete_records([before])[before].result(ledger.REQUEST_TIMEOUT_S)


def test_new_partition_whose_first_records_are_gone_stops_the_job_until_the_loss_is_accepted(
    spark: SparkSession, bootstrap_servers: str, topic: str, table_dir: MakeTableDir
) -> None:
    """The partition appears while the job runs. Spark's own error names no way to continue."""
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)

    def add_a_partition(step: Step, batch_id: int) -> None:
        if (step, batch_id) == (Step.TABLE_COMMITTED, 0):
            ledger.add_partitions(bootstrap_servers, topic, 2)
            ledger.produce(bootstrap_servers, topic, range(11, 51, 2), 2)
            cut(bootstrap_servers, topic, 1, 5)

    tables = TableDirWithSteps(options.tables.root, TableFormat.PARQUET, add_a_partition)
    running = replace(options, tables=tables, once=False, interval="1 second")
    removed = f"{topic}-1 has removed the offsets 0 to 4 .*--accept-loss"
    with pytest.raises(PipelineError, match=removed) as stopped:
        IngestJob(spark, running).run()
    assert "\n" not in str(stopped.value)
    refused(spark, options, removed)
    lines = _lines(spark, options.tables.root, bootstrap_servers, {})
    assert problem_texts(lines) == [f"{topic}-1: offsets 0 to 4 removed before the load"]

    IngestJob(spark, replace(options, accept_loss=True)).run()
    ledger.produce(bootstrap_servers, topic, range(60, 70), 2)
    IngestJob(spark, options).run()
    assert offsets_in(spark, options) == sorted([*range(15), *range(5, 25)])
    lines = _lines(spark, options.tables.root, bootstrap_servers, {})
    assert [line.state.losses.newest for line in lines] == [(), (Span(0, 5),)]
    assert problem_texts(lines) == []


def test_topic_that_was_deleted_is_told_apart(
    spark: SparkSession, bootstrap_servers: str, topic: str, table_dir: MakeTableDir
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    IngestJob(spark, options).run()
    delete_topic(bootstrap_servers, topic)
    refused(spark, options, f"'{topic}' does not exist, and .* has 10 records of it")
    lines = _lines(spark, options.tables.root, bootstrap_servers, {})
    assert problem_texts(lines) == [f"{topic}-0: the topic does not exist"]


@pytest.mark.parametrize("name", ["metadata", "offsets/1"])
def test_torn_checkpoint_is_refused_and_can_be_rebuilt(
    spark: SparkSession, bootstrap_servers: str, topic: str, table_dir: MakeTableDir, name: str
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 1)
    for produced in (range(10), range(10, 20)):
        ledger.produce(bootstrap_servers, topic, produced, 1)
        IngestJob(spark, options).run()
    rewrite(Path(options.tables.checkpoint) / name, "")
    ledger.produce(bootstrap_servers, topic, range(20, 30), 1)
    refused(spark, options, f"{name} is torn.*--rebuild-checkpoint")
    IngestJob(spark, replace(options, rebuild_checkpoint=True)).run()
    assert check(spark, options) == 30


@pytest.mark.parametrize(
    ("table_format", "produced"),
    [(TableFormat.ICEBERG, range(20, 30)), (TableFormat.PARQUET, range(0))],
)
def test_table_rolled_back_to_an_older_copy_is_refused_and_its_rows_can_be_loaded_again(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
    produced: range,
    tmp_path: Path,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    root = Path(options.tables.root)
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    IngestJob(spark, options).run()
    shutil.copytree(root, tmp_path / "older")
    ledger.produce(bootstrap_servers, topic, range(10, 20), 1)
    IngestJob(spark, options).run()
    for name in ("table", "quarantine"):
        shutil.rmtree(root / name)
        shutil.copytree(tmp_path / "older" / name, root / name)
    clear_cache_of_delta(spark)

    ledger.produce(bootstrap_servers, topic, produced, 1)
    refused(spark, options, "the checkpoint has finished offset 19. The table is an older copy")
    IngestJob(spark, replace(options, rebuild_checkpoint=True)).run()
    assert check(spark, options) == 20 + len(produced)


@pytest.mark.parametrize(
    ("table_format", "later"),
    [
        (TableFormat.DELTA, [range(10, 20), range(1, 6)]),
        (TableFormat.ICEBERG, [range(10, 20)]),
        (TableFormat.PARQUET, [range(10, 20)]),
    ],
)
def test_quarantine_rolled_back_to_an_older_copy_is_refused(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
    later: list[range],
    tmp_path: Path,
) -> None:
    """In the case of Delta the last batch has no rejected record."""
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    quarantine = Path(options.tables.path("quarantine"))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    IngestJob(spark, options).run()
    shutil.copytree(quarantine, tmp_path / "older")
    for produced in later:
        ledger.produce(bootstrap_servers, topic, produced, 1)
        IngestJob(spark, options).run()
    shutil.move(quarantine, tmp_path / "newest")
    shutil.copytree(tmp_path / "older", quarantine)
    clear_cache_of_delta(spark)
    refused(spark, options, "quarantine.*(older copy|commit files were removed)")
    shutil.rmtree(quarantine)
    shutil.move(tmp_path / "newest", quarantine)
    clear_cache_of_delta(spark)
    IngestJob(spark, options).run()
    assert check(spark, options) == 10 + sum(map(len, later))


def clear_cache_of_delta(spark: SparkSession) -> None:
    """Let Delta read the log of each table again, as in a new process."""
    spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]


def test_ledger_outlives_the_log_of_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "lake" / "table"
    table = open_table(spark, tmp_path, TableFormat.DELTA)
    spark.sql(
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointInterval' = '5',"
        " 'delta.logRetentionDuration' = 'interval 1 days')"
    )
    for batch_id in range(8):
        write(table, numbers(spark, 3 * batch_id, 3), commit_of(batch_id))
    table = open_table(spark, tmp_path, TableFormat.DELTA, epoch=2)
    log = path / "_delta_log"
    for file in log.glob("0*"):
        old = file.stat().st_mtime - 40 * DAYS_S
        os.utime(file, (old, old))
    clear_cache_of_delta(spark)
    table = open_table(spark, tmp_path, TableFormat.DELTA, epoch=3)
    for batch_id in range(8, 14):
        write(table, numbers(spark, 3 * batch_id, 3), commit_of(batch_id))
    assert not (log / f"{2:020}.json").exists(), "Delta removed no commit from its log"

    clear_cache_of_delta(spark)
    assert len(commits_of(DeltaSink(spark, str(path), "table"))) < 14
    table = open_table(spark, tmp_path, TableFormat.DELTA, epoch=4)
    assert [one.batch_id for one in table.store.commits()] == list(range(14))
    [partition] = table.store.state.partitions.values()
    assert (partition.start_offset, partition.next_offset) == (0, 42)
    assert (partition.gaps.count, partition.overlaps.count) == (0, 0)
    assert not write(table, numbers(spark, 0, 3), commit_of(0))
    assert in_table(DeltaSink(spark, str(path), "table")) == list(range(42))


@pytest.mark.parametrize("table_format", [TableFormat.DELTA, TableFormat.PARQUET])
def test_start_reads_as_many_files_after_100_as_after_2_000_commits(
    spark: SparkSession,
    tmp_path: Path,
    table_format: TableFormat,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[str] = []
    read_text = HadoopFiles.read_text

    def counted(self: HadoopFiles, path: str) -> str:
        reads.append(path)
        return read_text(self, path)

    counts = []
    for commits in (SEGMENT_COMMITS, 20 * SEGMENT_COMMITS):
        directory = tmp_path / str(commits)
        table = open_table(spark, directory, table_format)
        write(table, numbers(spark, 0, 3), commit_of(0))
        append_commits(directory / "lake" / "table", table_format, range(1, commits))
        clear_cache_of_delta(spark)
        open_table(spark, directory, table_format, epoch=2)
        append_commits(directory / "lake" / "table", table_format, range(commits, commits + 7))
        clear_cache_of_delta(spark)
        with monkeypatch.context() as patched:
            patched.setattr(HadoopFiles, "read_text", counted)
            reads.clear()
            table = open_table(spark, directory, table_format, epoch=3)
            counts.append(len(reads))
        assert table.store.state.commits == commits + 7
    assert counts[0] == counts[1] < 20


def append_commits(path: Path, table_format: TableFormat, batches: range) -> None:
    """Add commits without rows, as files."""
    for batch_id in batches:
        commit = replace(commit_of(batch_id), rows=0, ranges=())
        if table_format is TableFormat.PARQUET:
            (path / f"batch_id={batch_id}").mkdir()
            (path / "_commits" / f"{batch_id}.json").write_text(commit.to_json())
        else:
            append_version(path / "_delta_log", batch_id + 1, commit)


def append_version(log: Path, version: int, commit: BatchCommit) -> None:
    info = {"timestamp": 1, "operation": "WRITE", "userMetadata": commit.to_json()}
    (log / f"{version:020}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
