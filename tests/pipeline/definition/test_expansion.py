"""The ingests of a definition."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.definition.expansion import ingests_of
from odradek.pipeline.definition.model import (
    Encoding,
    Expectation,
    Payload,
    PipelineDefinition,
    Start,
    TableDefinition,
)
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.options import EARLIEST_IN_SPARK, IngestOptions
from odradek.pipeline.tables import TableDir, TableFormat
from odradek.pipeline.transforms.expectations import Condition, OnFailure


def options(directory: str = "/lake", **table: Any) -> IngestOptions:
    fields: dict[str, Any] = {"topics": ("a", "b"), **table}
    definition = PipelineDefinition(
        "p", directory, {"t": TableDefinition(**fields)}, "h:1", kafka={"x": "1", "y": "2"}
    )
    return ingests_of(definition, once=True)["t"]


def test_table_becomes_the_options_of_an_ingest() -> None:
    found = options(
        format=TableFormat.ICEBERG,
        value=Payload(Encoding.JSON, "n INT"),
        rejects_max=0.5,
        interval="1 minute",
        batch_rows=7,
        kafka={"y": "3"},
        expectations=(Expectation("e", "value.n > 0", OnFailure.DROP),),
    )
    assert found == IngestOptions(
        bootstrap_servers="h:1",
        topics=("a", "b"),
        tables=TableDir("/lake/t", TableFormat.ICEBERG),
        parser="json",
        schema="n INT",
        once=True,
        interval="1 minute",
        offsets_per_trigger_max=7,
        rejects_max=0.5,
        expectations=(Condition("e", "value.n > 0", OnFailure.DROP),),
        group="odradek.p.t",
        kafka={"x": "1", "y": "3"},
    )


@pytest.mark.parametrize(
    ("directory", "root"),
    [
        ("/lake/", "/lake/t"),
        ("/", "//t"),
        ("hdfs://h/lake/", "hdfs://h/lake/t"),
        ("lake", f"{Path.cwd()}/lake/t"),
    ],
)
def test_directory_is_absolute(directory: str, root: str) -> None:
    assert options(directory).tables.root == root


def partitions(topic: str) -> list[int]:
    return {"a": [0, 1], "b": [0]}[topic]


def test_start_at_offsets_names_all_partitions() -> None:
    source = options(start=Start(offsets={"a": {1: 5}})).source_options(partitions)
    assert (
        source["startingOffsets"]
        == f'{{"a": {{"0": {EARLIEST_IN_SPARK}, "1": 5}}, "b": {{"0": {EARLIEST_IN_SPARK}}}}}'
    )


def test_start_at_a_time_begins_at_the_end_where_no_record_is_later() -> None:
    start = Start(time=datetime(2026, 1, 2, tzinfo=UTC))
    source = options(start=start).source_options(partitions)
    assert source["startingTimestamp"] == "1767312000000"
    assert source["startingOffsetsByTimestampStrategy"] == "latest"
    assert "startingOffsets" not in source


def test_start_at_the_latest_offset() -> None:
    source = options(start=Start(at="latest")).source_options(partitions)
    assert source["startingOffsets"] == "latest"


def test_offsets_of_a_topic_that_the_table_does_not_read_are_refused() -> None:
    with pytest.raises(PipelineError, match="Table t starts at offsets of c"):
        options(start=Start(offsets={"c": {0: 1}}))


def test_fields_that_cannot_run_are_named() -> None:
    with pytest.raises(PipelineError, match="Table t uses key, columns_of_key, which"):
        options(key=Payload(Encoding.ACCESS_LOG), columns_of_key=("key",))
