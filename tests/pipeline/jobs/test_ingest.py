"""Ingests end to end, from a broker into Delta and Parquet tables."""

from __future__ import annotations

import gc
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.errors import ExpectationFailed, PipelineError, TooManyRejects
from odradek.pipeline.jobs.ingest import IngestJob
from odradek.pipeline.jobs.options import IngestOptions
from odradek.pipeline.progress import Progress
from odradek.pipeline.sinks.commit import commits_of
from odradek.pipeline.tables import TableDir, TableFormat
from odradek.pipeline.transforms.expectations import Condition, OnFailure
from tests.pipeline import ledger
from tests.pipeline.steps import Step, TableDirWithSteps, steps_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTableDir = Callable[[TableFormat], TableDir]
FORMATS = list(TableFormat)


@pytest.fixture(autouse=True)
def sockets_of_py4j_end_here() -> Iterator[None]:
    """Collect the sockets that Spark's callback threads leave, so that no later test fails."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def options_for(bootstrap_servers: str, topic: str, tables: TableDir) -> IngestOptions:
    return IngestOptions(
        bootstrap_servers=bootstrap_servers,
        topics=(topic,),
        tables=tables,
        parser="json",
        schema=ledger.SCHEMA,
        once=True,
        offsets_per_trigger_max=60,
    )


def check(spark: SparkSession, options: IngestOptions) -> int:
    """Assert that tables and topic agree, and return the number of records."""
    in_topic = ledger.read_topic(options.bootstrap_servers, options.topics[0])
    assert ledger.differences(in_topic, *ledger.read_tables(spark, options.tables)) == []
    return len(in_topic)


@pytest.mark.parametrize("table_format", FORMATS)
def test_every_record_arrives_once_also_over_restarts_and_new_partitions(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    ledger.create_topic(bootstrap_servers, topic, 2)
    ledger.produce(bootstrap_servers, topic, range(100), 2)
    seen: list[Progress] = []
    summary = IngestJob(spark, options, on_progress=seen.append).run()
    assert check(spark, options) == 100
    assert (summary.batches, summary.accepted, summary.rejected) == (2, 85, 15)
    assert [(one.batch_id, one.rows) for one in seen] == [(0, 60), (1, 40)]
    assert [one.lag for one in seen] == [40, 0]

    ledger.add_partitions(bootstrap_servers, topic, 3)
    ledger.produce(bootstrap_servers, topic, range(100, 160), 3)
    summary = IngestJob(spark, options).run()
    assert check(spark, options) == 160
    assert summary.accepted + summary.rejected == 60

    assert IngestJob(spark, options).run().accepted == 0
    assert check(spark, options) == 160
    _check_commits(spark, options.tables)


def _check_commits(spark: SparkSession, tables: TableDir) -> None:
    """Assert that the ranges of the commits have no gaps, and that their counts are right."""
    commits = commits_of(tables.table(spark))
    assert [one.batch_id for one in commits] == list(range(len(commits)))
    assert len({one.query_id for one in commits}) == 1
    next_offset: dict[int, int] = {}
    for one in (covered for commit in commits for covered in commit.ranges):
        assert one.first_offset == next_offset.get(one.partition, 0)
        assert one.rows == one.last_offset - one.first_offset + 1
        next_offset[one.partition] = one.last_offset + 1
    next_planned: dict[int, int] = {}
    for plan in (plan for commit in commits for plan in commit.planned or ()):
        assert plan.start_offset == next_planned.get(plan.partition, 0)
        next_planned[plan.partition] = plan.end_offset
    assert next_planned == next_offset
    rejected = commits_of(tables.quarantine(spark))
    assert sum(one.rows for one in commits) == tables.table(spark).read().count()
    assert sum(one.rows for one in rejected) == tables.quarantine(spark).read().count()
    assert sum(one.rows for one in [*commits, *rejected]) == sum(next_offset.values())


class Crash(Exception):
    """A simulated crash within the process of the test."""


@pytest.mark.parametrize(
    ("table_format", "step"), [(one, step) for one in FORMATS for step in steps_of(one)]
)
def test_batch_that_failed_at_any_step_exists_once_after_a_restart_with_a_new_partition(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
    step: Step,
) -> None:
    from pyspark.errors import StreamingQueryException

    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(30), 1)

    def crash_at(reached: Step, batch_id: int) -> None:
        if reached is step:
            raise Crash(reached)

    failing = TableDirWithSteps(options.tables.root, table_format, crash_at)
    with pytest.raises(StreamingQueryException, match="Crash"):
        IngestJob(spark, replace(options, tables=failing)).run()
    ledger.add_partitions(bootstrap_servers, topic, 2)
    ledger.produce(bootstrap_servers, topic, range(30, 40), 2)
    IngestJob(spark, options).run()
    assert check(spark, options) == 40


def test_bad_records_never_stop_the_job(
    spark: SparkSession, bootstrap_servers: str, topic: str, table_dir: MakeTableDir
) -> None:
    """This includes a batch in which all records are bad, and records without a value."""
    from confluent_kafka import Producer

    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.DELTA))
    ledger.create_topic(bootstrap_servers, topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for value in (b"\xff\xfe", b"[" * 10_000, b"", None):
        producer.produce(topic, value=value)
    assert producer.flush(ledger.REQUEST_TIMEOUT_S) == 0
    summary = IngestJob(spark, options).run()
    assert (summary.accepted, summary.rejected) == (0, 4)
    rows = options.tables.quarantine(spark).read().orderBy("offset").collect()
    values = [None if row.value is None else bytes(row.value) for row in rows]
    assert values == [b"\xff\xfe", b"[" * 10_000, b"", None]
    assert options.tables.table(spark).read().count() == 0
    assert IngestJob(spark, options).run().batches == 0


def test_several_topics_fill_one_table(
    spark: SparkSession, bootstrap_servers: str, topic: str, table_dir: MakeTableDir
) -> None:
    names = (f"{topic}-a", f"{topic}-b")
    for name in names:
        ledger.create_topic(bootstrap_servers, name, 1)
        ledger.produce(bootstrap_servers, name, range(1, 6), 1)
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.DELTA))
    IngestJob(spark, replace(options, topics=names)).run()
    counted = options.tables.table(spark).read().groupBy("topic").count().collect()
    assert {row["topic"]: row["count"] for row in counted} == dict.fromkeys(names, 5)


@pytest.mark.parametrize("lost", ["checkpoint", "table", "quarantine"])
def test_lost_checkpoint_or_table_is_refused(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    lost: str,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    IngestJob(spark, options).run()
    shutil.rmtree(Path(options.tables.path(lost)))
    with pytest.raises(PipelineError, match=lost):
        IngestJob(spark, options).run()


def test_exchanged_checkpoint_is_refused(
    spark: SparkSession, bootstrap_servers: str, topic: str, tmp_path: Path
) -> None:
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    dirs = [TableDir(str(tmp_path / name), TableFormat.DELTA) for name in ("one", "other")]
    for tables in dirs:
        IngestJob(spark, options_for(bootstrap_servers, topic, tables)).run()
    shutil.rmtree(dirs[0].checkpoint)
    shutil.move(dirs[1].checkpoint, dirs[0].checkpoint)
    with pytest.raises(PipelineError, match="not the checkpoint of"):
        IngestJob(spark, options_for(bootstrap_servers, topic, dirs[0])).run()


@pytest.mark.parametrize("table_format", FORMATS)
def test_batch_with_too_many_rejects_is_not_committed_and_is_planned_again(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    table_format: TableFormat,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(100), 1)
    strict = replace(options, rejects_max=0.05)
    for _ in range(2):
        with pytest.raises(TooManyRejects, match=r"^Batch 0 has 9 rejected records of 60, and"):
            IngestJob(spark, strict).run()
        assert options.tables.table(spark).read().count() == 0
        assert commits_of(options.tables.table(spark)) == []
    IngestJob(spark, replace(options, rejects_max=0.5)).run()
    assert check(spark, options) == 100


def test_lag_is_in_an_ordinary_group_after_each_batch(
    spark: SparkSession, bootstrap_servers: str, topic: str, table_dir: MakeTableDir
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 2)
    ledger.produce(bootstrap_servers, topic, range(100), 2)
    group = f"odradek.{topic}"
    IngestJob(spark, replace(options, group=group)).run()
    assert ledger.lag(bootstrap_servers, group, topic, 2) == [0, 0]
    ledger.produce(bootstrap_servers, topic, range(7), 2)
    assert ledger.lag(bootstrap_servers, group, topic, 2) == [4, 3]


def test_ingest_goes_on_if_its_lag_cannot_be_committed(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(20), 1)
    with ledger.member_of(bootstrap_servers, "taken", topic):
        # Only its members may commit the offsets of a group that has some.
        IngestJob(spark, replace(options, group="taken")).run()
    assert check(spark, options) == 20
    assert "did not commit offsets of the group" in caplog.text


def test_expectations_warn_drop_and_stop_the_job(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.DELTA))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(1, 21), 1)  # 7 and 14 do not parse
    warn = Condition("even", "value.n % 2 = 0", OnFailure.WARN)
    drop = Condition("small", "value.n < 19 AND key IS NOT NULL", OnFailure.DROP)
    stop = Condition("not_six", "value.n <> 6", OnFailure.FAIL)
    with pytest.raises(ExpectationFailed, match=r"has 1 records that do not meet .* not_six"):
        IngestJob(spark, replace(options, expectations=(warn, drop, stop))).run()
    assert options.tables.table(spark).read().count() == 0

    IngestJob(spark, replace(options, expectations=(warn, drop))).run()
    accepted = {row.value.n for row in options.tables.table(spark).read().collect()}
    assert accepted == set(range(1, 19)) - {5, 7, 10, 14, 15}
    rows = options.tables.quarantine(spark).read().where("code = 'expectation'").collect()
    assert {row.offset + 1 for row in rows} == {5, 10, 15, 19, 20}
    assert {row.reason for row in rows} == {"the expectation small is not met"}
    [commit] = commits_of(options.tables.table(spark))
    assert (commit.not_met, commit.rejected) == ({"even": 9, "small": 5}, 7)
    assert "has 9 records that do not meet the expectation even" in caplog.text


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("value.nothing > 1", "is not SQL on the columns of the table: "),
        ("value.n >", "is not SQL on the columns of the table: "),
        ("value.n + 1", "is bigint, and not true or false: value.n + 1"),
    ],
)
def test_expectation_that_is_no_condition_is_refused_at_the_start(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    sql: str,
    message: str,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 1)
    condition = Condition("c", sql, OnFailure.WARN)
    with pytest.raises(PipelineError, match="The expectation c ") as refused:
        IngestJob(spark, replace(options, expectations=(condition,))).run()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
