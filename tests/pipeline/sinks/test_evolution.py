"""Tables whose rows change: new fields, wider types, and fields that are no longer there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.tables import TableDir, TableFormat
from tests.pipeline.commits import write
from tests.pipeline.sinks.test_sinks import commit_of, sink_of, tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odradek.pipeline.sinks.ledgered import LedgeredTable

FORMATS = list(TableFormat)


def open_for(
    spark: SparkSession, tables: TableDir, rows: DataFrame, epoch: int = 1
) -> LedgeredTable:
    """Return the table as a driver opens it whose rows have this schema."""
    table = tables.ledgered(spark, "table", lambda: None, accept_changes=False)
    table.prepare(rows.schema)
    table.open(epoch)
    return table


@pytest.mark.parametrize("table_format", FORMATS)
def test_rows_before_and_after_a_change_of_the_schema_are_in_one_table(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    tables = tables_of(tmp_path, table_format)
    first = spark.sql("SELECT 1 AS n, 'a' AS gone, named_struct('x', 1, 'old', 'o') AS s")
    second = spark.sql(
        "SELECT 3000000000 AS n, named_struct('x', 3000000000, 'new', 'n') AS s, 1.5D AS more"
    )
    write(open_for(spark, tables, first), first, commit_of(0))
    write(open_for(spark, tables, second, 2), second, commit_of(1))
    write(open_for(spark, tables, first, 3), first, commit_of(2))
    found = sink_of(spark, tmp_path, table_format).read().orderBy("n").collect()
    earlier = {
        "n": 1,
        "gone": "a",
        "s": {"x": 1, "old": "o", "new": None},
        "more": None,
    }
    assert [row.asDict(recursive=True) for row in found] == [
        earlier,
        earlier,
        {
            "n": 3_000_000_000,
            "gone": None,
            "s": {"x": 3_000_000_000, "old": None, "new": "n"},
            "more": 1.5,
        },
    ]
    commits = open_for(spark, tables, second, 4).store.commits()
    assert [one.batch_id for one in commits] == [0, 1, 2]


@pytest.mark.parametrize("table_format", FORMATS)
def test_columns_are_written_by_name_and_not_by_position(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    tables = tables_of(tmp_path, table_format)
    rows = spark.sql("SELECT 'x' AS a, 'y' AS b")
    open_for(spark, tables, rows)
    write(open_for(spark, tables, rows.select("b", "a"), 2), rows.select("b", "a"), commit_of(0))
    [row] = sink_of(spark, tmp_path, table_format).read().collect()
    assert (row.a, row.b) == ("x", "y")


@pytest.mark.parametrize("table_format", FORMATS)
def test_rows_that_do_not_fit_are_refused_in_one_line_and_change_nothing(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    tables = tables_of(tmp_path, table_format)
    open_for(spark, tables, spark.sql("SELECT named_struct('x', 'text') AS s"))
    before = sink_of(spark, tmp_path, table_format).read().schema
    rows = spark.sql("SELECT named_struct('x', 1) AS s, 2 AS more")
    with pytest.raises(PipelineError, match=r"The field s\.x is string in the table") as refused:
        open_for(spark, tables, rows, 2)
    assert "\n" not in str(refused.value)
    assert sink_of(spark, tmp_path, table_format).read().schema == before


def test_iceberg_refuses_a_wider_type_that_it_cannot_give_a_field_in_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = tables_of(tmp_path, TableFormat.ICEBERG)
    open_for(spark, tables, spark.sql("SELECT 1 AS n"))
    with pytest.raises(PipelineError, match="do not fit the Iceberg table") as refused:
        open_for(spark, tables, spark.sql("SELECT 1.5D AS n"), 2)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("table_format", FORMATS)
def test_table_that_fits_is_not_changed(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    tables = tables_of(tmp_path, table_format)
    rows = spark.sql("SELECT 1 AS n, 'a' AS gone")
    for schema_of in (rows, rows, rows.select("n")):
        open_for(spark, tables, schema_of)
    sink = sink_of(spark, tmp_path, table_format)
    assert sink.read().columns == ["n", "gone"]
    if table_format is TableFormat.PARQUET:
        assert len(list((tmp_path / "lake" / "table" / "_schemas").glob("*.json"))) == 1
