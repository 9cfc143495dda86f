"""The append to a Delta table in two steps. It uses Delta's classes as its version has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.delta_transaction import DeltaAppend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    """Return the path of an empty table with the column `n`."""
    table = str(tmp_path / "t")
    numbers(spark, 0, 0).write.format("delta").save(table)
    return table


def numbers(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count).toDF("n")


def in_table(spark: SparkSession, path: str) -> list[int]:
    return sorted(row.n for row in spark.read.format("delta").load(path).collect())


def commit_info(path: str, version: int) -> dict[str, Any]:
    log = Path(path) / "_delta_log" / f"{version:020}.json"
    first = json.loads(log.read_text().splitlines()[0])
    info = first["commitInfo"]
    assert isinstance(info, dict)
    return info


def data_files(path: str) -> int:
    return len(list(Path(path).glob("*.parquet")))


def test_rows_are_in_the_table_after_the_commit_only(spark: SparkSession, path: str) -> None:
    append = DeltaAppend(spark, path, numbers(spark, 0, 3), "a", 0)
    assert not append.is_done()
    append.write()
    assert in_table(spark, path) == []
    assert append.commit("note") == 1
    assert in_table(spark, path) == [0, 1, 2]


def test_commit_has_the_metadata_the_mode_and_the_counts_of_an_append_by_spark(
    spark: SparkSession, path: str
) -> None:
    rows = numbers(spark, 0, 3).coalesce(1)
    append = DeltaAppend(spark, path, rows, "a", 0)
    append.write()
    append.commit('{"x":1}')
    rows.write.format("delta").mode("append").option("userMetadata", '{"x":1}').save(path)
    ours, sparks = commit_info(path, 1), commit_info(path, 2)
    for varies in ("timestamp", "txnId", "readVersion"):
        del ours[varies], sparks[varies]
    assert ours == sparks


def test_observed_counts_are_known_before_the_commit(spark: SparkSession, path: str) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observed = Observation()
    rows = numbers(spark, 0, 10).observe(observed, F.count(F.lit(1)).alias("rows"))
    append = DeltaAppend(spark, path, rows.where("n < 4"), "a", 0)
    append.write()
    assert observed.get == {"rows": 10}
    append.commit(str(observed.get["rows"]))
    assert commit_info(path, 1)["userMetadata"] == "10"
    assert in_table(spark, path) == [0, 1, 2, 3]


def test_append_that_is_not_committed_leaves_only_files_that_vacuum_removes(
    spark: SparkSession, path: str
) -> None:
    before = data_files(path)
    append = DeltaAppend(spark, path, numbers(spark, 0, 3).coalesce(1), "a", 0)
    append.write()
    assert data_files(path) > before
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert data_files(path) == 0
    assert in_table(spark, path) == []


def test_version_of_an_application_that_was_committed_is_done(
    spark: SparkSession, path: str
) -> None:
    append = DeltaAppend(spark, path, numbers(spark, 0, 1), "a", 5)
    append.write()
    append.commit("")
    done = {
        (application, version): DeltaAppend(
            spark, path, numbers(spark, 0, 1), application, version
        ).is_done()
        for application, version in (("a", 4), ("a", 5), ("a", 6), ("b", 5))
    }
    assert done == {("a", 4): True, ("a", 5): True, ("a", 6): False, ("b", 5): False}


def test_of_two_drivers_with_one_version_one_fails(spark: SparkSession, path: str) -> None:
    drivers = [DeltaAppend(spark, path, numbers(spark, 0, 2), "a", 0) for _ in range(2)]
    assert [driver.is_done() for driver in drivers] == [False, False]
    for driver in drivers:
        driver.write()
    drivers[0].commit("")
    with pytest.raises(PipelineError, match="Another driver has written the same batch"):
        drivers[1].commit("")
    assert in_table(spark, path) == [0, 1]


def test_rows_of_a_streaming_batch_are_appended(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    source = str(tmp_path / "source")
    numbers(spark, 0, 5).write.parquet(source)

    def write(rows: DataFrame, batch_id: int) -> None:
        append = DeltaAppend(spark, path, rows, "a", batch_id)
        append.write()
        append.commit(f"batch {batch_id}")

    stream = spark.readStream.schema("n BIGINT").parquet(source).writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    assert in_table(spark, path) == [0, 1, 2, 3, 4]
    assert commit_info(path, 1)["userMetadata"] == "batch 0"


def test_new_columns_are_added_with_merge_schema(spark: SparkSession, path: str) -> None:
    rows = numbers(spark, 0, 1).selectExpr("n", "'x' AS name")
    append = DeltaAppend(spark, path, rows, "a", 0, {"mergeSchema": "true"})
    append.write()
    append.commit("")
    assert spark.read.format("delta").load(path).columns == ["n", "name"]
