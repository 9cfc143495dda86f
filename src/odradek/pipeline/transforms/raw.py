"""Columns of Kafka's records in the pipeline, and the parser that keeps the raw bytes.

A parser is a function from records (the columns of `RECORD_COLUMNS` and the raw bytes in `value`)
to the same rows with two more columns. `parsed` is the value for the table. `reason` is null if the
record parsed, otherwise the cause (`transforms.reasons`). `transforms.quarantine` splits the rows
by `reason`.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.transforms.reasons import no_reason

Parser = Callable[[DataFrame], DataFrame]

RECORD_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "headers",
)
"""The columns that each row keeps of its record, with each parser."""

_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


def records(source: DataFrame) -> DataFrame:
    """Return the rows of Spark's Kafka source (read with includeHeaders) with renamed columns."""
    return source.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        _timestamp_type(F.col("timestampType")).alias("timestamp_type"),
        "key",
        "headers",
        "value",
    )


def _timestamp_type(code: Column) -> Column:
    name = F.lit(None).cast("string")
    for value, text in _TIMESTAMP_TYPES.items():
        name = F.when(code == value, F.lit(text)).otherwise(name)
    return name


def parse_raw(rows: DataFrame) -> DataFrame:
    """Keep the bytes of the value. A record without a value (a tombstone) keeps null."""
    return rows.withColumns({"parsed": F.col("value"), "reason": no_reason()})


def value_text(value: Column) -> Column:
    """Return the value as text, or null if its bytes are not UTF-8."""
    text = value.cast("string")
    return F.when(F.is_valid_utf8(text), text)
