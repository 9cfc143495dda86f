"""Ingests that continue from the tables, after a crash between the commits of both tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from odradek.cli.pipeline_ledger import _lines
from odradek.pipeline.jobs.ingest import IngestJob
from odradek.pipeline.ledger.report import problem_texts
from odradek.pipeline.tables import TableDir, TableFormat
from tests.pipeline import ledger
from tests.pipeline.jobs.test_ingest import Crash, check, options_for
from tests.pipeline.steps import Step, TableDirWithSteps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("table_format", list(TableFormat))
def test_lost_checkpoint_is_rebuilt_without_losing_or_doubling_a_row(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: Callable[[TableFormat], TableDir],
    table_format: TableFormat,
) -> None:
    from pyspark.errors import StreamingQueryException

    options = options_for(bootstrap_servers, topic, table_dir(table_format))
    ledger.create_topic(bootstrap_servers, topic, 2)
    ledger.produce(bootstrap_servers, topic, range(20), 2)

    def crash_at(reached: Step, batch_id: int) -> None:
        if reached is Step.TABLE_COMMITTED:
            raise Crash(reached)

    failing = TableDirWithSteps(options.tables.root, table_format, crash_at)
    with pytest.raises(StreamingQueryException, match="Crash"):
        IngestJob(spark, replace(options, tables=failing)).run()
    shutil.rmtree(options.tables.checkpoint)
    ledger.produce(bootstrap_servers, topic, range(20, 50), 2)
    IngestJob(spark, replace(options, rebuild_checkpoint=True)).run()
    assert check(spark, options) == 50
    ledger.produce(bootstrap_servers, topic, range(50, 60), 2)
    IngestJob(spark, options).run()
    assert check(spark, options) == 60

    lines = _lines(spark, options.tables.root, bootstrap_servers, {})
    assert problem_texts(lines) == []
    rows = [one.row() for one in lines]
    assert [(row["from"], row["to"], row["rows"], row["lag"]) for row in rows] == [
        (0, 29, 30, 0)
    ] * 2
