"""The raw parser, and the columns that each row keeps of its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.pipeline.jobs.ingest import KAFKA_SOURCE_SCHEMA
from odradek.pipeline.transforms.quarantine import accepted, rejected
from odradek.pipeline.transforms.raw import RECORD_COLUMNS, parse_raw, records
from tests.pipeline.source_rows import AT, source_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_row_keeps_everything_of_its_record(spark: SparkSession) -> None:
    parsed = parse_raw(records(source_rows(spark, [b"\xff\x00raw"])))
    (row,) = accepted(parsed).collect()
    assert row.topic == "t"
    assert (row.partition, row.offset) == (0, 0)
    assert row.timestamp.timestamp() == AT.timestamp()
    assert row.timestamp_type == "CreateTime"
    assert bytes(row.key) == b"key"
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("h", b"1")]
    assert bytes(row.value) == b"\xff\x00raw"


def test_timestamp_types_have_kafkas_names(spark: SparkSession) -> None:
    rows = [(None, None, "t", 0, code + 1, AT, code, None) for code in (-1, 0, 1)]
    source = spark.createDataFrame(rows, KAFKA_SOURCE_SCHEMA)
    names = [row.timestamp_type for row in records(source).orderBy("offset").collect()]
    assert names == [None, "CreateTime", "LogAppendTime"]


def test_raw_accepts_any_value_and_none(spark: SparkSession) -> None:
    parsed = parse_raw(records(source_rows(spark, [b"", None, b"\xff"])))
    assert accepted(parsed).count() == 3
    assert rejected(parsed, "raw").count() == 0


def test_columns_of_table_and_quarantine_are_the_stated_ones(spark: SparkSession) -> None:
    parsed = parse_raw(records(source_rows(spark, [])))
    assert accepted(parsed).columns == [*RECORD_COLUMNS, "value"]
    assert rejected(parsed, "raw").columns == [
        *RECORD_COLUMNS,
        "value",
        "parser",
        "reason",
        "code",
        "schema_id",
    ]
