"""Rows with the columns of Spark's Kafka source, created from values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from odradek.pipeline.jobs.ingest import KAFKA_SOURCE_SCHEMA
from odradek.pipeline.transforms.raw import records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from odradek.pipeline.transforms.raw import Parser

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


def source_rows(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    """Return one row for each value: topic t, partition 0, the value's index as its offset."""
    rows = [
        (b"key", value, "t", 0, offset, AT, 0, [("h", b"1")]) for offset, value in enumerate(values)
    ]
    return spark.createDataFrame(rows, KAFKA_SOURCE_SCHEMA)


def parse(spark: SparkSession, parser: Parser, values: Sequence[bytes | None]) -> list[Row]:
    """Return the rows of `parser` for `values`, in their order."""
    parsed = parser(records(source_rows(spark, values)))
    return parsed.orderBy("offset").collect()
