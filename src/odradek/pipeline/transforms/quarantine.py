"""Split of parsed rows into rows for the table and rows for the quarantine.

Each row of a batch is in exactly one of the two.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.transforms.raw import RECORD_COLUMNS


def accepted(parsed: DataFrame) -> DataFrame:
    """Return the table's rows: the record's columns, with the parser's result as `value`."""
    rows = parsed.where(F.col("reason").isNull())
    return rows.select(*RECORD_COLUMNS, F.col("parsed").alias("value"))


def rejected(parsed: DataFrame, parser_name: str) -> DataFrame:
    """Return the quarantine's rows: the record's columns, raw value, parser name and reason.

    `reason` is the text and `code` its code. `schema_id` is the id that a registry has given the
    schema of the record, or null.
    """
    rows = parsed.where(F.col("reason").isNotNull())
    return rows.select(
        *RECORD_COLUMNS,
        "value",
        F.lit(parser_name).alias("parser"),
        F.col("reason.text").alias("reason"),
        F.col("reason.code").alias("code"),
        F.lit(None).cast("int").alias("schema_id"),
    )
