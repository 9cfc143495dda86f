"""Rows with the schema of their table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from odradek.pipeline.evolution.conformed import conformed
from odradek.pipeline.evolution.merged import merged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def schema_of(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


@pytest.mark.parametrize(
    ("stored", "row", "expected"),
    [
        ("a INT, b STRING", "1 AS a", {"a": 1, "b": None}),
        ("b STRING, a INT", "1 AS a, 'x' AS b", {"b": "x", "a": 1}),
        ("a BIGINT", "1 AS a, 'x' AS new", {"a": 1, "new": "x"}),
        ("a STRUCT<x: INT>", "named_struct('y', 2) AS a", {"a": {"x": None, "y": 2}}),
        ("a STRUCT<x: INT>", "CAST(NULL AS STRUCT<y: INT>) AS a", {"a": None}),
        (
            "a ARRAY<STRUCT<x: INT>>",
            "array(named_struct('x', 1Y, 'y', 2), NULL) AS a",
            {"a": [{"x": 1, "y": 2}, None]},
        ),
        (
            "a MAP<BIGINT, STRUCT<x: INT>>",
            "map(1, named_struct('y', 2)) AS a",
            {"a": {1: {"x": None, "y": 2}}},
        ),
        ("a DECIMAL(10,4)", "1.25BD AS a", {"a": "1.2500"}),
        ("`a.b` INT", "1 AS `a.b`, 2 AS `c d`", {"a.b": 1, "c d": 2}),
    ],
)
def test_rows_get_the_columns_of_the_table(
    spark: SparkSession, stored: str, row: str, expected: dict[str, object]
) -> None:
    rows = spark.sql(f"SELECT {row}")
    schema = merged(schema_of(stored), rows.schema)
    found = conformed(rows, schema)
    assert found.schema.simpleString() == schema.simpleString()
    [only] = found.collect()
    values = only.asDict(recursive=True)
    assert list(values) == list(expected)
    assert {name: plain(value) for name, value in values.items()} == expected


def plain(value: object) -> object:
    """Return a decimal as a text, and other values unchanged."""
    return str(value) if type(value).__name__ == "Decimal" else value


def test_rows_that_fit_the_table_are_not_rebuilt(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS a, named_struct('x', 2) AS b")
    stored = schema_of("a INT, b STRUCT<x: INT>")  # all of them may be null
    plan = str(conformed(rows, stored)._jdf.queryExecution().logical())
    assert plan.count("named_struct") == 1
