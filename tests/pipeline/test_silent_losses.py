"""Ingests that lost or doubled rows without an error before the ledger.

The checks of owner and topics are the same for each format. Parquet is the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.ingest import IngestJob
from odradek.pipeline.tables import TableDir, TableFormat
from odradek.testing import Broker
from tests.pipeline import ledger
from tests.pipeline.jobs.test_ingest import check, options_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTableDir = Callable[[TableFormat], TableDir]


def refused(spark: SparkSession, options: object, match: str) -> None:
    """Assert that the job stops with one line, in `run` and again at the next start."""
    for _ in range(2):
        with pytest.raises(PipelineError, match=match) as stopped:
            IngestJob(spark, options).run()  # type: ignore[arg-type]
        assert "\n" not in str(stopped.value)


def test_fields_that_a_parquet_directory_did_not_have_are_read(
    spark: SparkSession, bootstrap_servers: str, topic: str, table_dir: MakeTableDir
) -> None:
    """They were written and never read."""
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    IngestJob(spark, options).run()
    ledger.produce(bootstrap_servers, topic, range(10, 20), 1)
    options = replace(options, schema=f"{ledger.SCHEMA}, more STRING")
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    producer.produce(topic, value=b'{"n": 20, "pad": "p", "more": "new"}', partition=0)
    assert producer.flush(ledger.REQUEST_TIMEOUT_S) == 0
    IngestJob(spark, options).run()
    values = options.tables.table(spark).read().select("value.n", "value.more")
    read = values.orderBy("n").collect()
    expected = [(n, None) for n in range(20) if n % 7]
    assert [tuple(row) for row in read] == [*expected, (20, "new")]


def test_parquet_directory_refuses_fields_of_another_type(
    spark: SparkSession, bootstrap_servers: str, topic: str, table_dir: MakeTableDir
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    IngestJob(spark, options).run()
    ledger.produce(bootstrap_servers, topic, range(10, 20), 1)
    refused(spark, replace(options, schema="n STRING, pad STRING"), "do not fit")
    IngestJob(spark, options).run()
    assert check(spark, options) == 20


def test_second_driver_on_a_directory_is_refused_until_the_first_one_ends(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    first = IngestJob(spark, options)
    query = first.start()
    try:
        query.awaitTermination(ledger.REQUEST_TIMEOUT_S)
        refused(spark, options, "belongs to process .* which is running")
    finally:
        query.stop()
        first.close()
    ledger.produce(bootstrap_servers, topic, range(10, 20), 1)
    IngestJob(spark, options).run()
    assert check(spark, options) == 20


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    admin.delete_topics([topic])[topic].result(ledger.REQUEST_TIMEOUT_S)


@pytest.mark.parametrize("produced", [30, 5], ids=["past the old end", "shorter than before"])
def test_topic_that_was_deleted_and_created_again_is_refused(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    table_dir: MakeTableDir,
    produced: int,
) -> None:
    """The job continued at the old offset of the new topic."""
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(10), 1)
    IngestJob(spark, options).run()
    delete_topic(bootstrap_servers, topic)
    ledger.create_topic(bootstrap_servers, topic, 1)
    ledger.produce(bootstrap_servers, topic, range(100, 100 + produced), 1)
    refused(spark, options, f"Topic '{topic}' was deleted and created again")
    assert options.tables.table(spark).read().count() == 8  # 0 and 7 are in the quarantine


@pytest.fixture
def other_cluster() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_topic_of_the_same_name_in_another_cluster_is_refused(
    spark: SparkSession,
    bootstrap_servers: str,
    other_cluster: str,
    topic: str,
    table_dir: MakeTableDir,
) -> None:
    options = options_for(bootstrap_servers, topic, table_dir(TableFormat.PARQUET))
    for address, records in ((bootstrap_servers, range(10)), (other_cluster, range(30))):
        ledger.create_topic(address, topic, 1)
        ledger.produce(address, topic, records, 1)
    IngestJob(spark, options).run()
    refused(spark, replace(options, bootstrap_servers=other_cluster), "is in cluster")
    ledger.produce(bootstrap_servers, topic, range(10, 20), 1)
    IngestJob(spark, options).run()
    assert check(spark, options) == 20
