"""Splits parsed rows into those for the table and those for the quarantine.

Every row of a batch is in exactly one of the two.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.transforms.raw import RECORD_COLUMNS


def accepted(parsed: DataFrame) -> DataFrame:
    """The table's rows: the record's columns, and as `value` what the parser made of it."""
    rows = parsed.where(F.col("reason").isNull())
    return rows.select(*RECORD_COLUMNS, F.col("parsed").alias("value"))


def rejected(parsed: DataFrame, parser_name: str) -> DataFrame:
    """The quarantine's rows: the record's columns, its raw value, the parser, and its reason."""
    rows = parsed.where(F.col("reason").isNotNull())
    return rows.select(*RECORD_COLUMNS, "value", F.lit(parser_name).alias("parser"), "reason")
