"""The ingest under SIGKILL: kills in each gap of a batch, and at a random time with one format.

No row is lost or doubled. `docs/pipeline-exactly-once.md` has the results of a longer run.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.tables import TableDir, TableFormat
from tests.pipeline import ledger
from tests.pipeline.killed_ingest import Plan
from tests.pipeline.killer import BATCH_ROWS, GAP_OF_STEP, Killer
from tests.pipeline.steps import Step, steps_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_killer(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    tmp_path: Path,
    table_format: TableFormat,
    seed: int,
    mutant: bool,
) -> tuple[Killer, TableDir]:
    directory = tmp_path / "lake"
    directory.mkdir()
    ledger.create_topic(bootstrap_servers, topic, 2)
    ledger.produce(bootstrap_servers, topic, range(4 * BATCH_ROWS), 2)
    plan = Plan(
        bootstrap_servers,
        topic,
        str(directory),
        table_format,
        BATCH_ROWS,
        forget_transactions=mutant,
        jars=spark.conf.get("spark.jars") or "",
    )
    return Killer(plan, random.Random(seed)), TableDir(str(directory), table_format)


def compare(spark: SparkSession, bootstrap_servers: str, topic: str, tables: TableDir) -> list[str]:
    in_topic = ledger.read_topic(bootstrap_servers, topic)
    return ledger.differences(in_topic, *ledger.read_tables(spark, tables))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("table_format", list(TableFormat))
def test_kill_in_any_gap_loses_nothing_and_doubles_nothing(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    tmp_path: Path,
    table_format: TableFormat,
    seed: int,
) -> None:
    killer, tables = make_killer(
        spark, bootstrap_servers, topic, tmp_path, table_format, seed, mutant=False
    )
    for step in steps_of(table_format):
        assert killer.kill_at(step, 1).gap == GAP_OF_STEP[step]
    if table_format is random.Random(seed).choice(list(TableFormat)):
        killer.kill_anywhere()
    killer.run_to_the_end()
    assert compare(spark, bootstrap_servers, topic, tables) == []


def test_commits_without_the_batch_number_are_detected(
    spark: SparkSession, bootstrap_servers: str, topic: str, tmp_path: Path, seed: int
) -> None:
    """Without Delta's transaction ids a kill between the two commits doubles the batch."""
    table_format = TableFormat.DELTA
    killer, tables = make_killer(
        spark, bootstrap_servers, topic, tmp_path, table_format, seed, mutant=True
    )
    killer.kill_at(Step.TABLE_COMMITTED, 1)
    killer.run_to_the_end()
    found = compare(spark, bootstrap_servers, topic, tables)
    assert found
    assert all(line.endswith("occurs 2 times") for line in found)
