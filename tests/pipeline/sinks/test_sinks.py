"""The sinks without an ingest: each batch is written once, and readers see only whole batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import BatchCommit, PlannedRange, ReadRange
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.parquet import ParquetSink
from odradek.pipeline.tables import TableDir, TableFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odradek.pipeline.sinks.commit import Sink

FORMATS = list(TableFormat)


def numbers(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count).toDF("n")


def commit_of(batch_id: int, rows: int = 3, query_id: str = "q") -> BatchCommit:
    ranges = (ReadRange("t", 0, 0, rows - 1, rows),)
    return BatchCommit(query_id, batch_id, rows, ranges, (PlannedRange("t", 0, 0, rows),))


def in_table(sink: Sink) -> list[int]:
    return sorted(row.n for row in sink.read().collect())


def make_sink(spark: SparkSession, tmp_path: Path, table_format: TableFormat) -> Sink:
    sink = TableDir(str(tmp_path / "lake"), table_format).table(spark)
    sink.prepare(numbers(spark, 0, 0).schema)
    return sink


@pytest.mark.parametrize("table_format", FORMATS)
def test_batch_committed_again_changes_nothing(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    sink = make_sink(spark, tmp_path, table_format)
    assert (sink.exists(), in_table(sink), sink.last_commit()) == (True, [], None)
    sink.commit(numbers(spark, 0, 3), commit_of(0))
    sink.commit(numbers(spark, 3, 3), commit_of(1))
    sink.commit(numbers(spark, 0, 3), commit_of(0))
    sink.prepare(numbers(spark, 0, 0).schema)
    assert in_table(sink) == list(range(6))
    assert sink.commits() == [commit_of(0), commit_of(1)]
    assert sink.last_commit() == commit_of(1)


@pytest.mark.parametrize("table_format", FORMATS)
def test_directory_without_a_table_has_no_commits(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    tables = TableDir(str(tmp_path / "nothing"), table_format)
    assert not tables.table(spark).exists()
    assert tables.table(spark).last_commit() is None
    with pytest.raises(PipelineError, match="is not the"):
        tables.create_views(spark)


def test_parquet_batch_without_its_commit_file_is_not_read_and_is_overwritten(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A crash between the rename of a batch and its commit file leaves this state."""
    sink = make_sink(spark, tmp_path, TableFormat.PARQUET)
    table = tmp_path / "lake" / "table"
    sink.commit(numbers(spark, 0, 3), commit_of(0))
    sink.commit(numbers(spark, 3, 3), commit_of(1))
    (table / "_commits" / "1.json").unlink()
    assert in_table(sink) == [0, 1, 2]
    sink.commit(numbers(spark, 30, 3), commit_of(1))
    assert in_table(sink) == [0, 1, 2, 30, 31, 32]
    every_file = spark.read.parquet(str(table))
    assert sorted(row.n for row in every_file.collect()) == in_table(sink)


def test_parquet_batch_half_staged_is_not_read_and_is_overwritten(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = make_sink(spark, tmp_path, TableFormat.PARQUET)
    staging = tmp_path / "lake" / "table" / "_staging" / "batch_id=0"
    numbers(spark, 50, 2).write.parquet(str(staging))
    (staging / "_SUCCESS").unlink()
    (tmp_path / "lake" / "table" / "_commits").mkdir()
    (tmp_path / "lake" / "table" / "_commits" / "0.json.tmp").write_text("{")
    assert in_table(sink) == []
    sink.commit(numbers(spark, 0, 3), commit_of(0))
    assert in_table(sink) == [0, 1, 2]


def test_parquet_batch_of_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    sink = make_sink(spark, tmp_path, TableFormat.PARQUET)
    sink.commit(numbers(spark, 0, 3), commit_of(0))
    with pytest.raises(PipelineError, match="of another query"):
        sink.commit(numbers(spark, 0, 3), commit_of(0, query_id="other"))


@pytest.mark.parametrize("table_format", FORMATS)
def test_batch_with_other_planned_offsets_than_its_commit_is_refused(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    sink = make_sink(spark, tmp_path, table_format)
    sink.commit(numbers(spark, 0, 3), commit_of(0))
    with pytest.raises(PipelineError, match="t-0 had offsets 0 to 2 and now has offsets 0 to 3"):
        sink.commit(numbers(spark, 0, 4), commit_of(0, rows=4))
    assert in_table(sink) == [0, 1, 2]


@pytest.mark.parametrize("table_format", FORMATS)
def test_batch_without_a_commit_below_later_ones_is_refused(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    """Delta would skip its rows, and a Parquet table would add them."""
    sink = make_sink(spark, tmp_path, table_format)
    sink.commit(numbers(spark, 0, 3), commit_of(1))
    with pytest.raises(PipelineError, match="no commit of batch 0"):
        sink.commit(numbers(spark, 0, 3), commit_of(0))
    assert in_table(sink) == [0, 1, 2]


@pytest.mark.parametrize("table_format", FORMATS)
def test_batch_without_rows_is_committed_too(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    sink = make_sink(spark, tmp_path, table_format)
    empty = BatchCommit("q", 0, 0, (), (PlannedRange("t", 0, 0, 3),))
    sink.commit(numbers(spark, 0, 0), empty)
    sink.commit(numbers(spark, 0, 0), empty)
    assert in_table(sink) == []
    assert sink.commits() == [empty]


def test_other_commits_to_a_delta_table_are_ignored(spark: SparkSession, tmp_path: Path) -> None:
    sink = make_sink(spark, tmp_path, TableFormat.DELTA)
    sink.commit(numbers(spark, 0, 3), commit_of(0))
    path = str(tmp_path / "lake" / "table")
    numbers(spark, 100, 1).write.format("delta").mode("append").save(path)
    assert sink.last_commit() == commit_of(0)


def test_application_ids_of_table_and_quarantine_differ(spark: SparkSession) -> None:
    ids = {
        DeltaSink(spark, "p", role).transaction_options(commit_of(4, query_id=query))["txnAppId"]
        for role in ("table", "quarantine")
        for query in ("q1", "q2")
    }
    assert len(ids) == 4


def test_parquet_sink_takes_a_path_with_a_slash_at_its_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = ParquetSink(spark, f"{tmp_path}/t/")
    sink.prepare(numbers(spark, 0, 0).schema)
    sink.commit(numbers(spark, 0, 1), commit_of(0))
    assert in_table(sink) == [0]
