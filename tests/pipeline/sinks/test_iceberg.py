"""Iceberg tables: staged batches, changes by other programs, and removed snapshots."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.java_gateway import JavaPackage

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.store import NOTHING
from odradek.pipeline.sinks import iceberg, ledgered
from odradek.pipeline.sinks.commit import commits_of
from odradek.pipeline.sinks.iceberg import IcebergSink
from odradek.pipeline.tables import TableFormat
from tests.pipeline.commits import append, write
from tests.pipeline.sinks.test_sinks import commit_of, in_table, numbers, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.pipeline.sinks.ledgered import LedgeredTable


def open_iceberg(
    spark: SparkSession, tmp_path: Path, epoch: int = 1, *, accept_changes: bool = False
) -> LedgeredTable:
    return open_table(spark, tmp_path, TableFormat.ICEBERG, epoch, accept_changes=accept_changes)


def driver(spark: SparkSession, tmp_path: Path, epoch: int) -> IcebergSink:
    """Return the table as a driver has it that has claimed the directory and read the ledger."""
    sink = IcebergSink(spark, str(tmp_path / "lake" / "table"))
    sink.take_over(epoch, lambda: None)
    sink.tail(NOTHING)
    return sink


def java_table(sink: IcebergSink) -> Any:
    return sink._load()


def test_iceberg_refuses_a_batch_on_a_snapshot_that_is_no_longer_the_newest(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two drivers have read the table at the same time, and both write a batch."""
    open_iceberg(spark, tmp_path)
    sinks = [driver(spark, tmp_path, 2) for _ in range(2)]
    append(sinks[0], numbers(spark, 0, 3), commit_of(0))
    with pytest.raises(PipelineError, match="Another program has changed"):
        append(sinks[1], numbers(spark, 0, 3), commit_of(0))
    assert in_table(sinks[1]) == [0, 1, 2]
    assert commits_of(sinks[1]) == [commit_of(0)]


def test_fenced_iceberg_table_takes_no_batch_that_was_being_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    open_iceberg(spark, tmp_path)
    sink = driver(spark, tmp_path, 2)
    sink.fence("q")
    with pytest.raises(PipelineError, match="Another program has changed"):
        append(sink, numbers(spark, 0, 3), commit_of(0))
    assert in_table(sink) == []


def test_batch_of_a_former_owner_on_its_iceberg_branch_is_not_read_and_is_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    def lost() -> None:
        raise PipelineError("another driver owns the directory")

    open_iceberg(spark, tmp_path)
    sink = driver(spark, tmp_path, 2)
    with pytest.raises(PipelineError, match="another driver"):
        append(sink, numbers(spark, 0, 3), commit_of(0), lost)
    assert in_table(sink) == []
    assert sink.branches() == ["odradek_2"]
    table = open_iceberg(spark, tmp_path, 3)
    assert sink.branches() == ["odradek_3"]
    assert write(table, numbers(spark, 0, 3), commit_of(0))
    assert in_table(sink) == [0, 1, 2]


def java(spark: SparkSession) -> Any:
    """Return the package org.apache.iceberg."""
    context: Any = spark.sparkContext
    return context._jvm.org.apache.iceberg


def compact(spark: SparkSession, sink: IcebergSink) -> None:
    actions = java(spark).spark.actions.SparkActions.get(spark._jsparkSession)
    rewrite = actions.rewriteDataFiles(java_table(sink)).option("rewrite-all", "true")
    assert rewrite.execute().rewrittenDataFilesCount() > 1


def test_changes_of_an_iceberg_table_by_others_are_told_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = open_iceberg(spark, tmp_path)
    path = str(tmp_path / "lake" / "table")
    write(table, numbers(spark, 0, 3), commit_of(0))
    numbers(spark, 100, 1).write.format("iceberg").mode("append").save(path)
    compact(spark, IcebergSink(spark, path))
    assert not write(table, numbers(spark, 0, 3), commit_of(0))
    numbers(spark, 7, 1).write.format("iceberg").mode("overwrite").save(path)
    with pytest.raises(PipelineError, match=r"changed .*: overwrite in version"):
        write(table, numbers(spark, 3, 3), commit_of(1))
    everything = java(spark).expressions.Expressions.alwaysTrue()
    java_table(IcebergSink(spark, path)).newDelete().deleteFromRowFilter(everything).commit()
    with pytest.raises(PipelineError, match=r"overwrite in version \d+, delete in version \d+\."):
        open_iceberg(spark, tmp_path, 3)
    table = open_iceberg(spark, tmp_path, 4, accept_changes=True)
    write(table, numbers(spark, 3, 3), commit_of(1))
    changes = [one.split()[0] for one in table.store.state.accepted_changes]
    assert changes == ["overwrite", "delete"]
    assert in_table(IcebergSink(spark, path)) == [3, 4, 5]


def commit_of_another_driver(spark: SparkSession, tmp_path: Path) -> None:
    write(open_iceberg(spark, tmp_path, 3), numbers(spark, 0, 3), commit_of(0))


def take_over(spark: SparkSession, tmp_path: Path) -> None:
    open_iceberg(spark, tmp_path, 3)


def fence(spark: SparkSession, tmp_path: Path) -> None:
    driver(spark, tmp_path, 3).fence("q")


@pytest.mark.parametrize("interrupt", [commit_of_another_driver, take_over, fence])
def test_driver_that_pauses_between_its_last_check_and_the_commit_publishes_nothing(
    spark: SparkSession, tmp_path: Path, interrupt: Callable[[SparkSession, Path], None]
) -> None:
    open_iceberg(spark, tmp_path)
    paused = driver(spark, tmp_path, 2)
    with pytest.raises(PipelineError, match="Another program has changed"):
        append(paused, numbers(spark, 50, 3), commit_of(0), lambda: interrupt(spark, tmp_path))
    assert 50 not in in_table(paused)


def test_driver_whose_iceberg_branch_its_successor_removed_stops_in_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    open_iceberg(spark, tmp_path)
    replaced = driver(spark, tmp_path, 2)
    open_iceberg(spark, tmp_path, 3)
    with pytest.raises(PipelineError, match="Another program has changed") as stopped:
        append(replaced, numbers(spark, 0, 3), commit_of(0))
    assert "\n" not in str(stopped.value)
    assert (in_table(replaced), replaced.branches()) == ([], ["odradek_3"])


def test_rolled_back_iceberg_table_is_told_apart_from_an_older_copy(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = open_iceberg(spark, tmp_path)
    sink = IcebergSink(spark, str(tmp_path / "lake" / "table"))
    write(table, numbers(spark, 0, 3), commit_of(0))
    snapshot = java_table(sink).currentSnapshot().snapshotId()
    write(table, numbers(spark, 3, 3), commit_of(1))
    open_iceberg(spark, tmp_path, 2)
    java_table(sink).manageSnapshots().rollbackTo(snapshot).commit()
    for _ in range(2):
        with pytest.raises(PipelineError, match=r"changed .*: rollback in version \d+\. "):
            open_iceberg(spark, tmp_path, 3)
    table = open_iceberg(spark, tmp_path, 4, accept_changes=True)
    write(table, numbers(spark, 6, 3), commit_of(2))
    assert [one.split()[0] for one in table.store.state.accepted_changes] == ["rollback"]
    open_iceberg(spark, tmp_path, 5)
    assert in_table(sink) == [0, 1, 2, 6, 7, 8]


@pytest.fixture
def few_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the 8 snapshots of 4 batches, and a segment of the ledger for every 4 commits."""
    for name in ("SNAPSHOTS_KEPT", "BRANCH_SNAPSHOTS"):
        monkeypatch.setattr(iceberg, name, 8)
    monkeypatch.setattr(iceberg, "EXPIRE_AT", 12)
    monkeypatch.setattr(ledgered, "SEGMENT_COMMITS", 4)
    for name, value in (("min-snapshots-to-keep", "8"), ("max-snapshot-age-ms", "1")):
        monkeypatch.setitem(iceberg.PROPERTIES, f"history.expire.{name}", value)


@pytest.mark.usefixtures("few_snapshots")
def test_ledger_outlives_the_snapshots_of_an_iceberg_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = open_iceberg(spark, tmp_path)
    sink = IcebergSink(spark, str(tmp_path / "lake" / "table"))
    counts = []
    for batch_id in range(14):
        write(table, numbers(spark, 3 * batch_id, 3), commit_of(batch_id))
        counts.append(java_table(sink).operations().current().snapshots().size())
    assert max(counts) < 8 + 2 * 8
    assert len(commits_of(sink)) < 14

    table = open_iceberg(spark, tmp_path, 2)
    assert [one.batch_id for one in table.store.commits()] == list(range(14))
    [partition] = table.store.state.partitions.values()
    assert (partition.start_offset, partition.next_offset) == (0, 42)
    assert (partition.gaps.count, partition.overlaps.count) == (0, 0)
    assert not write(table, numbers(spark, 0, 3), commit_of(0))
    assert in_table(sink) == list(range(42))


@pytest.mark.parametrize("epochs", [[2], [2, 3]])
def test_expiry_by_another_program_keeps_the_commits_that_no_segment_has(
    spark: SparkSession, tmp_path: Path, epochs: list[int]
) -> None:
    table = open_iceberg(spark, tmp_path)
    sink = IcebergSink(spark, str(tmp_path / "lake" / "table"))
    for batch_id in range(5):
        write(table, numbers(spark, 3 * batch_id, 3), commit_of(batch_id))
    newest = java_table(sink).currentSnapshot().timestampMillis()
    for epoch in epochs:
        expiry = java_table(sink).expireSnapshots()
        expiry.expireOlderThan(newest + 1).retainLast(1).commit()
        table = open_iceberg(spark, tmp_path, epoch)
    assert [one.batch_id for one in table.store.commits()] == list(range(5))
    [partition] = table.store.state.partitions.values()
    assert (partition.batches, partition.gaps.count) == (5, 0)
    assert in_table(sink) == list(range(15))


@pytest.mark.usefixtures("few_snapshots")
def test_iceberg_table_whose_snapshots_cannot_be_removed_takes_batches_with_a_warning(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = open_iceberg(spark, tmp_path)
    sink = IcebergSink(spark, str(tmp_path / "lake" / "table"))
    java_table(sink).updateProperties().set("gc.enabled", "false").commit()
    with caplog.at_level(logging.WARNING):
        for batch_id in range(8):
            write(table, numbers(spark, 3 * batch_id, 3), commit_of(batch_id))
    [warning] = [text for text in caplog.messages if "old snapshots" in text]
    assert "GC is disabled" in warning
    assert in_table(sink) == list(range(24))


def test_type_that_iceberg_stores_as_another_one_fits_its_own_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = IcebergSink(spark, str(tmp_path / "table"))
    rows = spark.sql("SELECT 7S AS n, named_struct('small', 1Y) AS value")
    for _ in range(2):
        sink.prepare(rows.schema)
    sink.take_over(1, lambda: None)
    sink.tail(NOTHING)
    append(sink, rows, commit_of(0))
    assert [(row.n, row.value.small) for row in sink.read().collect()] == [(7, 1)]


def test_type_that_iceberg_does_not_have_is_refused_in_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = IcebergSink(spark, str(tmp_path / "table"))
    with pytest.raises(PipelineError, match="Iceberg has no type for a field of") as refused:
        sink.prepare(spark.sql("SELECT INTERVAL '1' DAY AS pause").schema)
    assert "\n" not in str(refused.value)
    assert not sink.exists()


def test_session_without_iceberg_is_refused_in_one_line() -> None:
    hadoop = SimpleNamespace(
        HadoopTables=JavaPackage("org.apache.iceberg.hadoop.HadoopTables", None)
    )
    java = SimpleNamespace(iceberg=SimpleNamespace(hadoop=hadoop))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=java))
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm))
    sink = IcebergSink.__new__(IcebergSink)
    sink._spark = spark  # type: ignore[assignment]
    with pytest.raises(PipelineError, match=r"no Iceberg\. Open it with SessionOptions"):
        sink._iceberg()
