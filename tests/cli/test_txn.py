"""`odradek txn` against a real broker and a real transactional producer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from odradek.broker.transactions.late_transactions import finding_late_transactions
from odradek.slicing import run_to_completion
from tests.helpers.transactions import produce_transactional

if TYPE_CHECKING:
    from odradek.broker.broker import BrokerServer
    from odradek.testing import Broker

    from .conftest import Cli

TIMEOUT_S = 120
LONG = {"transaction.timeout.ms": 900_000}  # longer than a machine may be suspended


@pytest.fixture
def producer(kafka: Broker) -> Any:
    """A producer with an open transaction: one record in pages-0."""
    kafka.create_topic("pages")
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "mover", **LONG}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("pages", b"1")
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def test_list_filters_by_state_and_pattern(cli: Cli, producer: Any) -> None:
    [row] = cli.json("txn", "list")
    assert (row["transactional_id"], row["state"]) == ("mover", "Ongoing")
    assert cli.json("txn", "list", "--state", "Empty") == []
    assert cli.json("txn", "list", "--pattern", "m.*", "--state", "Ongoing") == [row]
    assert "'Open'" in str(cli("txn", "list", "--state", "Open").exception)


def test_describe_shows_the_open_transaction(cli: Cli, producer: Any) -> None:
    [row] = cli.json("txn", "describe", "mover")
    assert row["state"] == "Ongoing"
    assert row["partitions"] == ["pages-0"]
    assert row["started"] is not None
    assert "pages-0" in cli.ok("txn", "describe", "mover")
    missing = cli("txn", "describe", "nobody")
    assert "Transactional id 'nobody' does not exist" in str(missing.exception)


def test_abort_by_id_ends_the_transaction_and_fences_its_producer(
    cli: Cli, kafka: Broker, producer: Any
) -> None:
    assert "aborted transactional_id mover" in cli.ok("txn", "abort", "mover")
    kafka.wait_for_open_transactions(0)
    kafka.wait_for_high_watermark("pages", 2)
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)
    assert "no open transaction" in str(cli("txn", "abort", "mover").exception)


def test_abort_by_offset_writes_a_marker_in_that_partition(
    cli: Cli, kafka: Broker, producer: Any
) -> None:
    wrong = cli("txn", "abort", "--topic", "pages", "--start-offset", "7")
    assert "No open transaction begins at offset 7 of pages-0" in str(wrong.exception)
    result = cli.json("txn", "abort", "--topic", "pages", "--start-offset", "0")
    assert (result["topic"], result["partition"]) == ("pages", 0)
    kafka.wait_for_high_watermark("pages", 2)


HOUR_MS = 3_600_000


def hang(kafka: Broker, topic: str, partition: int = 0, *, age_ms: int = HOUR_MS) -> None:
    """Open a transaction of producer 77 that is that old, and that no coordinator knows."""
    stamp = time.time_ns() // 1_000_000 - age_ms
    produce_transactional(kafka, 77, 0, b"1", topic=topic, partition=partition, timestamp_ms=stamp)


def committed(kafka: Broker, topic: str, count: int) -> list[bytes]:
    """Return the values of the first records that a consumer in read_committed receives."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        return [each.value() for each in consumer.consume(count, TIMEOUT_S)]
    finally:
        consumer.close()


def test_hanging_transaction_is_found_and_aborted_and_readers_continue(
    cli: Cli, kafka: Broker
) -> None:
    kafka.create_topic("pages", 2)
    hang(kafka, "pages", 1)
    plain = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    plain.produce("pages", b"behind it", partition=1)
    assert plain.flush(TIMEOUT_S) == 0
    [found] = cli.json("txn", "find-hanging")
    assert found.pop("last_timestamp").endswith("+00:00")
    assert found.pop("duration_min") >= 60
    assert found == {
        "topic": "pages",
        "partition": 1,
        "producer_id": 77,
        "producer_epoch": 0,
        "coordinator_epoch": -1,
        "start_offset": 0,
    }
    assert "pages" in cli.ok("txn", "find-hanging", "--topic", "pages", "--partition", "1")
    assert cli.json("txn", "find-hanging", "--topic", "pages", "--partition", "0") == []
    assert cli.json("txn", "find-hanging", "--max-transaction-timeout", "90") == []
    where = ["--topic", "pages", "--partition", "1", "--start-offset", "0"]
    assert cli.json("txn", "abort", *where)["producer_id"] == 77
    assert cli.json("txn", "find-hanging") == []
    assert committed(kafka, "pages", 1) == [b"behind it"]


def test_late_transaction_with_a_warning_in_the_log_is_found_and_aborted(
    cli: Cli, kafka: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def late() -> int:
        async def count(server: BrokerServer) -> int:
            services = server.services
            now_ms = services.clock.time_ms()
            max_timeout_ms = services.config.get_int("transaction.max.timeout.ms")
            partitions = services.replica_manager.partitions()
            late = finding_late_transactions(partitions, now_ms, max_timeout_ms)
            return len(run_to_completion(late))

        return kafka.call(count)

    kafka.create_topic("pages")
    hang(kafka, "pages", age_ms=1_000)
    assert late() == 0
    for _ in range(2):
        kafka.advance(20 * 60)
    assert late() == 1
    assert "pages-0 has a late transaction: producer id 77, start offset 0" in caplog.text
    # The clock of the command line has not moved.
    [found] = cli.json("txn", "find-hanging", "--max-transaction-timeout", "0")
    cli.ok("txn", "abort", "--topic", found["topic"], "--start-offset", str(found["start_offset"]))
    assert late() == 0
    caplog.clear()
    kafka.advance(20 * 60)
    assert "late transaction" not in caplog.text


def test_transaction_that_its_coordinator_will_end_does_not_hang(cli: Cli, kafka: Broker) -> None:
    kafka.create_topic("pages", 2)
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "mover", **LONG}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    hour_ago_ms = time.time_ns() // 1_000_000 - HOUR_MS
    producer.produce("pages", b"1", partition=0, timestamp=hour_ago_ms)
    assert producer.flush(TIMEOUT_S) == 0
    assert cli.json("txn", "find-hanging") == []
    [listed] = cli.json("txn", "list")
    produce_transactional(
        kafka, listed["producer_id"], 0, b"1", topic="pages", partition=1, timestamp_ms=hour_ago_ms
    )
    [found] = cli.json("txn", "find-hanging")
    assert found["partition"] == 1, "a partition that the coordinator does not know"


def test_find_hanging_refuses_missing_topics_and_partitions(cli: Cli, kafka: Broker) -> None:
    missing = str(cli("txn", "find-hanging", "--topic", "nothing").exception)
    assert (
        missing == "Topic 'nothing' does not exist. Create it with `odradek topic create nothing`."
    )
    kafka.create_topic("pages")
    missing = str(cli("txn", "find-hanging", "--topic", "pages", "--partition", "1").exception)
    assert "Topic 'pages' has no partition 1" in missing
    assert "--topic" in str(cli("txn", "find-hanging", "--partition", "1").exception)


def test_abort_needs_exactly_one_transaction(cli: Cli) -> None:
    assert "Name the transaction" in str(cli("txn", "abort").exception)
    assert "Name the transaction" in str(
        cli("txn", "abort", "x", "--topic", "t", "--start-offset", "0").exception
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("abort", "--topic", "t", "--start-offset", "-1"),
        ("abort", "--topic", "t", "--start-offset", "0", "--partition", str(2**31)),
        ("find-hanging", "--topic", "t", "--partition", "-1"),
        ("find-hanging", "--topic", "t", "--partition", str(2**31)),
    ],
)
def test_number_out_of_range_is_usage(cli: Cli, arguments: tuple[str, ...]) -> None:
    result = cli("txn", *arguments)
    assert result.exit_code == 2
    assert "Invalid value" in result.output
