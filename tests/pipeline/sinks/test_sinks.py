"""The sinks without an ingest: each batch is written once, and readers see only whole batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger.commits import BatchCommit, PlannedRange, ReadRange
from odradek.pipeline.sinks.commit import commits_of
from odradek.pipeline.sinks.delta import DeltaSink, changes_rows
from odradek.pipeline.sinks.parquet import ParquetSink
from odradek.pipeline.tables import TableDir, TableFormat
from tests.pipeline.commits import append, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odradek.pipeline.sinks.commit import Sink
    from odradek.pipeline.sinks.ledgered import LedgeredTable

FORMATS = list(TableFormat)


def numbers(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count).toDF("n")


def commit_of(batch_id: int, rows: int = 3, query_id: str = "q") -> BatchCommit:
    """Return a commit of the offsets after those of the batches before it."""
    start = batch_id * 3
    ranges = (ReadRange("t", 0, start, start + rows - 1, rows),)
    planned = (PlannedRange("t", 0, start, start + rows),)
    return BatchCommit(query_id, batch_id, rows, ranges, planned)


def in_table(sink: Sink) -> list[int]:
    return sorted(row.n for row in sink.read().collect())


def tables_of(tmp_path: Path, table_format: TableFormat) -> TableDir:
    return TableDir(str(tmp_path / "lake"), table_format)


def open_table(
    spark: SparkSession,
    tmp_path: Path,
    table_format: TableFormat,
    epoch: int = 1,
    *,
    accept_changes: bool = False,
) -> LedgeredTable:
    """Return the table as the owner of an epoch opens it."""
    tables = tables_of(tmp_path, table_format)
    table = tables.ledgered(spark, "table", lambda: None, accept_changes=accept_changes)
    table.prepare(numbers(spark, 0, 0).schema)
    table.open(epoch)
    return table


def sink_of(spark: SparkSession, tmp_path: Path, table_format: TableFormat) -> Sink:
    return tables_of(tmp_path, table_format).table(spark)


@pytest.mark.parametrize("table_format", FORMATS)
def test_batch_committed_again_changes_nothing(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    table = open_table(spark, tmp_path, table_format)
    sink = sink_of(spark, tmp_path, table_format)
    assert (sink.exists(), in_table(sink), commits_of(sink)) == (True, [], [])
    written = [
        write(table, numbers(spark, 3 * batch_id, 3), commit_of(batch_id)) for batch_id in (0, 1, 0)
    ]
    assert written == [True, True, False]
    table = open_table(spark, tmp_path, table_format, epoch=2)
    assert not write(table, numbers(spark, 3, 3), commit_of(1))
    assert write(table, numbers(spark, 6, 3), commit_of(2))
    assert in_table(sink) == list(range(9))
    assert commits_of(sink) == [commit_of(0), commit_of(1), commit_of(2)]
    assert table.store.commits() == commits_of(sink)


@pytest.mark.parametrize("table_format", FORMATS)
def test_directory_without_a_table_has_no_commits(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    tables = TableDir(str(tmp_path / "nothing"), table_format)
    assert not tables.table(spark).exists()
    assert commits_of(tables.table(spark)) == []
    with pytest.raises(PipelineError, match="is not the"):
        tables.create_views(spark)


def test_parquet_batch_without_its_commit_file_is_not_read_and_is_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A crash between the rename of a batch and its commit file leaves this state."""
    table = open_table(spark, tmp_path, TableFormat.PARQUET)
    sink = sink_of(spark, tmp_path, TableFormat.PARQUET)
    path = tmp_path / "lake" / "table"
    write(table, numbers(spark, 0, 3), commit_of(0))
    write(table, numbers(spark, 3, 3), commit_of(1))
    (path / "_commits" / "1.json").unlink()
    assert in_table(sink) == [0, 1, 2]
    table = open_table(spark, tmp_path, TableFormat.PARQUET, epoch=2)
    write(table, numbers(spark, 30, 3), commit_of(1))
    assert in_table(sink) == [0, 1, 2, 30, 31, 32]
    every_file = spark.read.parquet(str(path))
    assert sorted(row.n for row in every_file.collect()) == in_table(sink)


def test_parquet_commit_file_that_was_removed_stops_the_job_and_keeps_the_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The rows of that batch would be removed, because they have no commit."""
    path = tmp_path / "lake" / "table"
    for epoch in (1, 2, 3):
        table = open_table(spark, tmp_path, TableFormat.PARQUET, epoch)
        if epoch < 3:
            write(table, numbers(spark, 3 * epoch - 3, 3), commit_of(epoch - 1))
    (path / "_commits" / "0.json").unlink()
    with pytest.raises(PipelineError, match=r"has 1 commits, and its ledger .* has 2") as refused:
        open_table(spark, tmp_path, TableFormat.PARQUET, epoch=4)
    assert "\n" not in str(refused.value)
    assert (path / "batch_id=0").exists()


def test_parquet_batch_half_staged_by_an_older_version_is_not_read_and_is_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = sink_of(spark, tmp_path, TableFormat.PARQUET)
    staging = tmp_path / "lake" / "table" / "_staging" / "batch_id=0"
    numbers(spark, 50, 2).write.parquet(str(staging))
    (staging / "_SUCCESS").unlink()
    (tmp_path / "lake" / "table" / "_commits").mkdir()
    (tmp_path / "lake" / "table" / "_commits" / "0.json.tmp").write_text("{")
    table = open_table(spark, tmp_path, TableFormat.PARQUET)
    assert in_table(sink) == []
    assert not staging.exists()
    write(table, numbers(spark, 0, 3), commit_of(0))
    assert in_table(sink) == [0, 1, 2]


def test_parquet_table_of_an_older_version_keeps_its_schema_and_its_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "lake" / "table"
    numbers(spark, 0, 3).write.parquet(str(path / "batch_id=0"))
    (path / "_commits").mkdir()
    (path / "_commits" / "0.json").write_text(commit_of(0).to_json())
    (path / "_schema.json").write_text(numbers(spark, 0, 0).schema.json())
    table = open_table(spark, tmp_path, TableFormat.PARQUET)
    write(table, numbers(spark, 3, 3), commit_of(1))
    assert in_table(sink_of(spark, tmp_path, TableFormat.PARQUET)) == list(range(6))


@pytest.mark.parametrize("table_format", FORMATS)
def test_batch_with_other_planned_offsets_than_its_commit_is_refused(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    table = open_table(spark, tmp_path, table_format)
    write(table, numbers(spark, 0, 3), commit_of(0))
    with pytest.raises(PipelineError, match="t-0 had offsets 0 to 2 and now has offsets 0 to 3"):
        write(table, numbers(spark, 0, 4), commit_of(0, rows=4))
    with pytest.raises(PipelineError, match="leave a gap after"):
        write(table, numbers(spark, 6, 3), commit_of(2))
    assert in_table(sink_of(spark, tmp_path, table_format)) == [0, 1, 2]


def test_delta_batch_that_delta_skips_stops_the_job(spark: SparkSession, tmp_path: Path) -> None:
    """Delta skips it without an error, if the table's history no longer has its commit."""
    table = open_table(spark, tmp_path, TableFormat.DELTA)
    sink = DeltaSink(spark, str(tmp_path / "lake" / "table"), "table")
    options = {"txnAppId": sink.application_id("q"), "txnVersion": "5"}
    writer = numbers(spark, 0, 0).write.format("delta").mode("append")
    writer.options(**options).save(str(tmp_path / "lake" / "table"))
    with pytest.raises(PipelineError, match=r"Batch 0 is not in .* after its commit"):
        write(table, numbers(spark, 0, 3), commit_of(0))


@pytest.mark.parametrize("table_format", FORMATS)
def test_batch_without_rows_is_committed_too(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    table = open_table(spark, tmp_path, table_format)
    empty = BatchCommit("q", 0, 0, (), (PlannedRange("t", 0, 0, 3),))
    assert write(table, numbers(spark, 0, 0), empty)
    assert not write(table, numbers(spark, 0, 0), empty)
    sink = sink_of(spark, tmp_path, table_format)
    assert in_table(sink) == []
    assert commits_of(sink) == [empty]


def test_changes_of_a_delta_table_by_others_are_told_apart(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = open_table(spark, tmp_path, TableFormat.DELTA)
    path = str(tmp_path / "lake" / "table")
    write(table, numbers(spark, 0, 3), commit_of(0))
    numbers(spark, 100, 1).write.format("delta").mode("append").save(path)
    spark.sql(f"OPTIMIZE delta.`{path}`")
    assert not write(table, numbers(spark, 0, 3), commit_of(0))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE n = 1")
    with pytest.raises(PipelineError, match=r"changed .*: DELETE in version") as refused:
        write(table, numbers(spark, 3, 3), commit_of(1))
    assert "\n" not in str(refused.value)
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 1")
    with pytest.raises(PipelineError, match=r"DELETE in version .*, RESTORE in version"):
        open_table(spark, tmp_path, TableFormat.DELTA, epoch=2)
    table = open_table(spark, tmp_path, TableFormat.DELTA, epoch=3, accept_changes=True)
    write(table, numbers(spark, 3, 3), commit_of(1))
    assert [one.split()[0] for one in table.store.state.accepted_changes] == ["DELETE", "RESTORE"]
    open_table(spark, tmp_path, TableFormat.DELTA, epoch=4)


@pytest.mark.parametrize(
    ("operation", "parameters", "changed"),
    [
        ("WRITE", {"mode": "Append"}, False),
        ("WRITE", {"mode": "Overwrite"}, True),
        ("OPTIMIZE", {}, False),
        ("VACUUM START", {}, False),
        ("SET TBLPROPERTIES", {}, False),
        ("MERGE", {}, True),
        ("TRUNCATE", {}, True),
        ("CREATE OR REPLACE TABLE AS SELECT", {}, True),
    ],
)
def test_operations_that_change_rows_are_known(
    operation: str, parameters: dict[str, str], changed: bool
) -> None:
    assert changes_rows({"operation": operation, "operationParameters": parameters}) == changed


def test_application_ids_of_table_and_quarantine_differ(spark: SparkSession) -> None:
    ids = {
        DeltaSink(spark, "p", role).application_id(query)
        for role in ("table", "quarantine")
        for query in ("q1", "q2")
    }
    assert len(ids) == 4


def test_parquet_sink_takes_a_path_with_a_slash_at_its_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = ParquetSink(spark, f"{tmp_path}/t/")
    sink.prepare(numbers(spark, 0, 0).schema)
    sink.take_over(1, lambda: None)
    append(sink, numbers(spark, 0, 1), commit_of(0))
    assert in_table(sink) == [0]
