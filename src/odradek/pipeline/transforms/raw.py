"""Kafka's rows as the pipeline keeps them, and the parser that parses nothing.

A parser is a function from records (the columns of `RECORD_COLUMNS` and `value`, raw bytes) to the
same rows with two more columns: `parsed`, what the table shall keep as the value, and `reason`,
null or why the record did not parse. `transforms.quarantine` splits the rows by it.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

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
"""What every row keeps of its record, whichever parser read it."""

_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}


def records(source: DataFrame) -> DataFrame:
    """The rows of Spark's Kafka source (read with includeHeaders) under the pipeline's names."""
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
    """Keeps the value's bytes as they are; a record without a value (a tombstone) keeps none."""
    return rows.withColumns({"parsed": F.col("value"), "reason": F.lit(None).cast("string")})


def value_text(value: Column) -> Column:
    """The value as text, null where its bytes are not UTF-8."""
    text = value.cast("string")
    return F.when(F.is_valid_utf8(text), text)


def first_reason(*checks: tuple[Column, str]) -> Column:
    """The text of the first check that holds, else null. A check that is null does not hold."""
    return F.coalesce(*(F.when(fails, F.lit(why)) for fails, why in checks))
