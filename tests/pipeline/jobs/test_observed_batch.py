"""The counts of a batch that are taken while its rows are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.jobs.observed_batch import PARTITIONS_OBSERVED_MAX, ObservedBatch
from odradek.pipeline.ledger.commits import PlannedRange, ReadRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "topic STRING, partition INT, offset BIGINT, reason STRING"
ROWS = [
    ("a", 0, 5, None),
    ("a", 0, 9, "bad"),
    ("a", 1, 7, None),
    ("b", 0, 0, "bad"),
]
PLANNED = (
    PlannedRange("a", 0, 5, 10),
    PlannedRange("a", 1, 0, 8),
    PlannedRange("a", 2, 3, 4),
    PlannedRange("b", 0, 0, 1),
)
RANGES = (
    ReadRange("a", 0, 5, 9, 2, 1),
    ReadRange("a", 1, 7, 7, 1, 0),
    ReadRange("b", 0, 0, 0, 1, 1),
)


def parsed(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, COLUMNS)


def write(rows: DataFrame) -> None:
    rows.where("reason IS NULL").write.format("noop").mode("overwrite").save()


def wide(planned: tuple[PlannedRange, ...]) -> tuple[PlannedRange, ...]:
    """Return the plan with more partitions than are observed."""
    others = (PlannedRange("c", one, 0, 1) for one in range(PARTITIONS_OBSERVED_MAX))
    return (*planned, *others)


def test_records_are_counted_by_partition_although_a_filter_follows(spark: SparkSession) -> None:
    batch = ObservedBatch(parsed(spark), PLANNED)
    write(batch.rows)
    assert batch.ranges() == RANGES


def test_ranges_have_the_order_of_topic_and_partition(spark: SparkSession) -> None:
    batch = ObservedBatch(parsed(spark), PLANNED[::-1])
    write(batch.rows)
    assert batch.ranges() == RANGES


def test_batch_without_records_has_no_ranges(spark: SparkSession) -> None:
    batch = ObservedBatch(parsed(spark).where("offset < 0"), PLANNED)
    write(batch.rows)
    assert batch.ranges() == ()


def test_records_of_a_partition_that_was_not_planned_are_seen(spark: SparkSession) -> None:
    batch = ObservedBatch(parsed(spark), PLANNED[:3])
    write(batch.rows)
    assert batch.ranges() == RANGES


def test_partitions_of_a_wide_batch_are_counted_too(spark: SparkSession) -> None:
    batch = ObservedBatch(parsed(spark), wide(PLANNED))
    write(batch.rows)
    assert batch.ranges() == RANGES


@pytest.mark.parametrize("plan", [PLANNED, wide(PLANNED)])
def test_ranges_are_read_without_a_write(
    spark: SparkSession, plan: tuple[PlannedRange, ...]
) -> None:
    assert ObservedBatch(parsed(spark), plan).read_ranges() == RANGES


def test_records_are_parsed_once_while_they_are_written(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    parses = spark.sparkContext.accumulator(0)

    def parse(value: int) -> int:
        parses.add(1)
        return value

    expensive = F.udf(parse, "BIGINT")
    rows = parsed(spark).withColumn("value", expensive("offset"))
    rows = rows.withColumn("reason", F.when(F.col("value") > 8, "bad"))
    batch = ObservedBatch(rows, PLANNED)
    write(batch.rows.select("value", "reason"))
    assert batch.ranges()
    assert parses.value == len(ROWS)
