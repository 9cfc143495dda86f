"""Tables that programs other than Spark read: pyiceberg, record by record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyiceberg.table import StaticTable

from odradek.pipeline.jobs.ingest import IngestJob
from odradek.pipeline.sinks.iceberg import COMMIT
from odradek.pipeline.tables import TableDir, TableFormat
from tests.pipeline import ledger
from tests.pipeline.jobs.test_ingest import options_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows_of(table: StaticTable, value: Callable[[Any], int | bytes]) -> ledger.Rows:
    return [
        (
            ledger.RecordLocation(row["topic"], row["partition"], row["offset"]),
            ledger.Entry(
                round(row["timestamp"].timestamp() * 1000),
                row["key"],
                tuple((one["key"], one["value"]) for one in row["headers"] or ()),
                value(row["value"]),
            ),
        )
        for row in table.scan().to_arrow().to_pylist()
    ]


def test_pyiceberg_reads_each_record_of_the_topic_once(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: Callable[[TableFormat], TableDir],
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.ICEBERG))
    ledger.create_topic(bootstrap_servers, topic, 2)
    for produced in (range(100), range(100, 150)):
        ledger.produce(bootstrap_servers, topic, produced, 2)
        IngestJob(spark, options).run()
    table, quarantine = (
        StaticTable.from_metadata(options.tables.path(name)) for name in ("table", "quarantine")
    )
    rows = rows_of(table, lambda value: int(value["n"])), rows_of(quarantine, bytes)
    in_topic = ledger.read_topic(bootstrap_servers, topic)
    assert len(in_topic) == 150
    assert ledger.differences(in_topic, *rows) == []

    newest = table.current_snapshot()
    assert newest is not None and newest.summary is not None
    planned = json.loads(str(newest.summary[COMMIT]))["planned"]
    assert [(one["partition"], one["end_offset"]) for one in planned] == [(0, 75), (1, 75)]
