"""Checks of an ingest's options without Spark: accepted and refused values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.checks import check_interval, check_starting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVALS = (
    "10 seconds",
    "1 second",
    "0 seconds",
    " 1 MINUTE 30 seconds ",
    "interval 2 hours",
    "500 milliseconds",
    "1 week 2 days 3 microseconds",
    "300 weeks",
)
NO_INTERVALS = (
    "",
    "foo",
    "10",
    "10 parsecs",
    "seconds 10",
    "1 month",
    "-1 seconds",
    "99999999 weeks",
)


def refusal_of_spark(spark: SparkSession, interval: str) -> str | None:
    """Return Spark's own error for a trigger's interval, or None if Spark accepts it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    assert spark.sparkContext._jvm is not None
    trigger = spark.sparkContext._jvm.org.apache.spark.sql.streaming.Trigger
    try:
        trigger.ProcessingTime(interval)
    except (Py4JJavaError, CapturedException) as error:
        return str(error)
    return None


@pytest.mark.parametrize("text", INTERVALS)
def test_accepted_interval_is_accepted_by_spark(spark: SparkSession, text: str) -> None:
    check_interval(text)
    assert refusal_of_spark(spark, text) is None


@pytest.mark.parametrize("text", NO_INTERVALS)
def test_interval_that_spark_refuses_is_refused(spark: SparkSession, text: str) -> None:
    with pytest.raises(PipelineError, match="is not an interval"):
        check_interval(text)
    assert refusal_of_spark(spark, text) is not None


@pytest.mark.parametrize(
    "text",
    ["earliest", "latest", "LATEST", '{"t": {"0": 5, "1": -2, "2": -1}, "u": {"0": 0}}'],
)
def test_start_is_a_word_or_offsets(text: str) -> None:
    check_starting(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "foo",
        "5",
        "{}",
        "[]",
        '{"t": 5}',
        '{"t": {"x": 5}}',
        '{"t": {"0": "5"}}',
        '{"t": {"0": 5.5}}',
        '{"t": {"0": true}}',
        '{"t": {"0": -3}}',
        '{"t": {"0": 9223372036854775808}}',
    ],
)
def test_invalid_start_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(PipelineError, match="is not a start") as refused:
        check_starting(text)
    assert "\n" not in str(refused.value)
