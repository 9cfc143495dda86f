"""Ingests whose checkpoint is older than their tables, or has lost its offsets."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.ingest import IngestJob
from odradek.pipeline.ledger.commits import PlannedRange
from odradek.pipeline.sinks.commit import commits_of
from odradek.pipeline.tables import TableDir, TableFormat
from tests.pipeline import ledger
from tests.pipeline.jobs.test_ingest import check, options_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTableDir = Callable[[TableFormat], TableDir]
FORMATS = [TableFormat.DELTA, TableFormat.PARQUET]
"""The checks of a batch are the same for each format. Iceberg's tests are in `sinks/` and `jobs/`.
"""
CLI_TIMEOUT_S = 600


def rewrite(path: Path, text: str) -> None:
    """Replace a file of Hadoop's local file system, which keeps a checksum beside it."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.write_text(text)


def crash_before_the_checkpoint_commit(tables: TableDir, batch_id: int) -> None:
    """Bring the checkpoint to the state of a crash after the tables have committed the batch."""
    commit = Path(tables.checkpoint) / "commits" / str(batch_id)
    commit.with_name(f".{batch_id}.crc").unlink(missing_ok=True)
    commit.unlink()


def bring_commits_into_the_old_form(tables: TableDir) -> None:
    """Bring all commits into the form of the first version, which had no ledger either."""
    shutil.rmtree(Path(tables.path("ledger")), ignore_errors=True)
    for name in ("table", "quarantine"):
        for path in Path(tables.path(name), "_commits").glob("*.json"):
            rewrite(path, _in_the_old_form(path.read_text()))
        for path in Path(tables.path(name), "_delta_log").glob("*.json"):
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            for info in (action["commitInfo"] for action in actions if "commitInfo" in action):
                if "userMetadata" in info:
                    info["userMetadata"] = _in_the_old_form(info["userMetadata"])
            rewrite(path, "".join(f"{json.dumps(action)}\n" for action in actions))


def _in_the_old_form(commit: str) -> str:
    fields = json.loads(commit)
    old = {name: fields[name] for name in ("query_id", "batch_id", "rows", "ranges")}
    for one in old["ranges"]:
        del one["rejected"]
    return json.dumps(old, separators=(",", ":"))


def produce_transaction(bootstrap_servers: str, topic: str, numbers: range, commit: bool) -> None:
    """Send the records `numbers` to partition 0 in one transaction, and end it with a marker."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(ledger.REQUEST_TIMEOUT_S)
    producer.begin_transaction()
    for n in numbers:
        producer.produce(topic, value=ledger.value_of(n), partition=0)
    assert producer.flush(ledger.REQUEST_TIMEOUT_S) == 0
    if commit:
        producer.commit_transaction(ledger.REQUEST_TIMEOUT_S)
    else:
        producer.abort_transaction(ledger.REQUEST_TIMEOUT_S)


def planned_ranges(spark: SparkSession, tables: TableDir) -> list[PlannedRange]:
    return [one for commit in commits_of(tables.table(spark)) for one in commit.planned or ()]


def restore_older_copy(checkpoint: Path, older: Path) -> None:
    shutil.rmtree(checkpoint)
    shutil.copytree(older, checkpoint)


def empty_offsets(checkpoint: Path, older: Path) -> None:
    empty(checkpoint / "offsets")


def empty_offsets_and_commits(checkpoint: Path, older: Path) -> None:
    empty(checkpoint / "offsets")
    empty(checkpoint / "commits")


def empty(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("damage", [restore_older_copy, empty_offsets, empty_offsets_and_commits])
def test_batch_planned_with_other_offsets_stops_the_job_until_the_checkpoint_is_back(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
    damage: Callable[[Path, Path], None],
    tmp_path: Path,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    checkpoint = Path(options.tables.checkpoint)
    ledger.create_topic(bootstrap_servers, topic, 2)
    ledger.produce(bootstrap_servers, topic, range(20), 2)
    IngestJob(spark, options).run()
    shutil.copytree(checkpoint, tmp_path / "older")
    ledger.produce(bootstrap_servers, topic, range(20, 40), 2)
    IngestJob(spark, options).run()
    shutil.copytree(checkpoint, tmp_path / "newest")
    ingested = ledger.read_topic(bootstrap_servers, topic)
    assert len(ingested) == 40
    ledger.produce(bootstrap_servers, topic, range(40, 60), 2)

    damage(checkpoint, tmp_path / "older")
    for _ in range(2):  # the second run finds the plan that the first one wrote
        with pytest.raises(PipelineError, match="checkpoint") as stopped:
            IngestJob(spark, options).run()
        assert "\n" not in str(stopped.value)
    assert ledger.differences(ingested, *ledger.read_tables(spark, options.tables)) == []

    restore_older_copy(checkpoint, tmp_path / "newest")
    IngestJob(spark, options).run()
    assert check(spark, options) == 60


@pytest.mark.parametrize("table_format", list(TableFormat))
def test_older_copy_that_plans_the_same_batch_again_skips_it(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
    tmp_path: Path,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    checkpoint = Path(options.tables.checkpoint)
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(20), 1)
    IngestJob(spark, options).run()
    shutil.copytree(checkpoint, tmp_path / "older")
    ledger.produce(bootstrap_servers, topic, range(20, 40), 1)
    IngestJob(spark, options).run()

    restore_older_copy(checkpoint, tmp_path / "older")
    IngestJob(spark, options).run()
    ledger.produce(bootstrap_servers, topic, range(40, 60), 1)
    IngestJob(spark, options).run()
    assert check(spark, options) == 60
    assert planned_ranges(spark, options.tables) == [
        PlannedRange(topic, 0, start, start + 20) for start in (0, 20, 40)
    ]


@pytest.mark.parametrize("table_format", FORMATS)
def test_ingest_with_emptied_offsets_stops_without_new_records_too(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
) -> None:
    """Spark would plan batch 0 as before, skip it, and then fail because its commit exists."""
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    ledger.create_topic(bootstrap_servers, topic, 2)
    ledger.produce(bootstrap_servers, topic, range(20), 2)
    IngestJob(spark, options).run()

    empty(Path(options.tables.checkpoint) / "offsets")
    with pytest.raises(PipelineError, match="the file offsets/0 with its offsets is missing"):
        IngestJob(spark, options).run()
    assert check(spark, options) == 20


@pytest.mark.parametrize("table_format", FORMATS)
def test_ingest_with_emptied_commits_continues_without_losing_or_doubling_a_row(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    ledger.create_topic(bootstrap_servers, topic, 2)
    for produced in (range(20), range(20, 40)):
        ledger.produce(bootstrap_servers, topic, produced, 2)
        IngestJob(spark, options).run()
    ledger.produce(bootstrap_servers, topic, range(40, 60), 2)

    empty(Path(options.tables.checkpoint) / "commits")
    IngestJob(spark, options).run()
    assert check(spark, options) == 60
    assert len(commits_of(options.tables.table(spark))) == 3


def test_stopped_command_says_why_in_one_line(
    spark: SparkSession, bootstrap_servers: str, topic: str, table_dir: MakeTableDir
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.DELTA))
    checkpoint = Path(options.tables.checkpoint)
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(1, 6), 1)
    IngestJob(spark, options).run()
    empty_offsets_and_commits(checkpoint, checkpoint)
    ledger.produce(bootstrap_servers, topic, range(8, 13), 1)

    command = [sys.executable, "-m", "odradek", "pipeline", "ingest", "--topics", topic, "--once"]
    command += ["--table-dir", options.tables.root, "--bootstrap-server", bootstrap_servers]
    command += ["--parser", "json", "--schema", ledger.SCHEMA]
    result = subprocess.run(command, capture_output=True, text=True, timeout=CLI_TIMEOUT_S)
    assert result.returncode == 1
    started, reading, stopped = result.stderr.splitlines()
    assert started.startswith("odradek: starting Spark")
    assert reading.startswith(f"odradek: {topic} at ")
    table = options.tables.path("table")
    assert stopped == (
        f"odradek: Batch 0 of {table} was committed with other offsets than the checkpoint plans"
        f" for it now: {topic}-0 had offsets 0 to 4 and now has offsets 0 to 9. The checkpoint was"
        " restored from an older copy, or its offsets were removed. Bring the newest copy of the"
        " checkpoint back, or continue from the tables with --rebuild-checkpoint."
    )


@pytest.mark.parametrize("table_format", FORMATS)
def test_repeated_batch_that_an_older_version_committed_is_skipped_with_a_warning(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Transaction markers and an empty partition make the plan wider than the records."""
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    ledger.create_topic(bootstrap_servers, topic, 2)
    produce_transaction(bootstrap_servers, topic, range(10), commit=True)
    produce_transaction(bootstrap_servers, topic, range(10), commit=False)
    IngestJob(spark, options).run()
    assert planned_ranges(spark, options.tables) == [PlannedRange(topic, 0, 0, 22)]
    bring_commits_into_the_old_form(options.tables)
    crash_before_the_checkpoint_commit(options.tables, 0)

    ledger.produce(bootstrap_servers, topic, range(10, 30), 2)
    IngestJob(spark, options).run()
    warnings = [text for text in caplog.messages if "by an older version" in text]
    assert len(warnings) == 2  # of the table and of the quarantine
    assert check(spark, options) == 30


@pytest.mark.parametrize("table_format", list(TableFormat))
def test_batch_without_records_is_committed_and_repeated_like_others(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    ledger.create_topic(bootstrap_servers, topic, 1)
    produce_transaction(bootstrap_servers, topic, range(5), commit=False)
    assert IngestJob(spark, options).run().batches == 0
    crash_before_the_checkpoint_commit(options.tables, 0)
    ledger.produce(bootstrap_servers, topic, range(20), 1)
    assert IngestJob(spark, options).run().batches == 1
    assert check(spark, options) == 20
    expected = [PlannedRange(topic, 0, 0, 6), PlannedRange(topic, 0, 6, 26)]
    assert planned_ranges(spark, options.tables) == expected

    empty_offsets_and_commits(Path(options.tables.checkpoint), Path())
    with pytest.raises(PipelineError, match="had offsets 0 to 5 and now has offsets 0 to 25"):
        IngestJob(spark, options).run()


@pytest.mark.parametrize("table_format", FORMATS)
def test_repeated_batch_with_a_topic_that_appeared_in_it_exists_once(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    ledger.create_topic(bootstrap_servers, topic, 2)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    IngestJob(spark, options).run()
    later = f"{topic}-later"
    ledger.create_topic(bootstrap_servers, later, 2)
    ledger.produce(bootstrap_servers, later, range(10), 2)
    options = replace(options, topics=(topic, later))
    IngestJob(spark, options).run()
    crash_before_the_checkpoint_commit(options.tables, 1)

    ledger.produce(bootstrap_servers, later, range(10, 20), 2)
    ledger.produce(bootstrap_servers, topic, range(10, 20), 2)
    IngestJob(spark, options).run()
    in_topics = {
        **ledger.read_topic(bootstrap_servers, topic),
        **ledger.read_topic(bootstrap_servers, later),
    }
    assert len(in_topics) == 40
    assert ledger.differences(in_topics, *ledger.read_tables(spark, options.tables)) == []
