"""`odradek group` against a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Position

from odradek.cli.client import wait
from odradek.cli.failures import Subject
from odradek.cli.output import CommandError

if TYPE_CHECKING:
    from odradek.testing import Broker

    from .conftest import Cli

TIMEOUT_S = 120
NO_SUCH_GROUP = "Group 'nosuch' does not exist. `odradek group list` shows all groups."
HOUR_MS = 3_600_000
# The session must not end while the machine is suspended or overloaded.
PATIENT = {"session.timeout.ms": 600_000, "max.poll.interval.ms": 900_000}


@pytest.fixture
def pages(kafka: Broker) -> str:
    """A topic of two partitions with five records each, of which "readers" has committed two.

    The first three records are three hours old, the others one hour.
    """
    kafka.create_topic("pages", partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    now_ms = int(time.time() * 1000)
    for number in range(5):
        age_ms = HOUR_MS if number >= 3 else 3 * HOUR_MS
        for partition in range(2):
            producer.produce("pages", b"v", partition=partition, timestamp=now_ms - age_ms)
    assert producer.flush(TIMEOUT_S) == 0
    commit(kafka, *(Position("pages", p, 2) for p in range(2)))
    return "pages"


@pytest.fixture
def moved(kafka: Broker) -> str:
    """A topic of two partitions, each with one record and a transaction marker after it.

    The records are one hour old. Group "readers" has committed offset 1 of partition 0, where only
    the marker is left.
    """
    kafka.create_topic("moved", partitions=2)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "mover"}
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for partition in range(2):
        at_ms = int(time.time() * 1000) - HOUR_MS
        producer.produce("moved", b"v", partition=partition, timestamp=at_ms)
    producer.commit_transaction(TIMEOUT_S)
    for partition in range(2):
        kafka.wait_for_high_watermark("moved", 2, partition=partition)
    commit(kafka, Position("moved", 0, 1))
    return "moved"


def commit(kafka: Broker, *offsets: Position) -> None:
    servers = kafka.bootstrap_servers
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers", **PATIENT})
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()


@contextmanager
def member(kafka: Broker) -> Iterator[None]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "readers",
            "client.id": "app",
            "enable.auto.commit": False,
            **PATIENT,
        }
    )
    consumer.subscribe(["pages"])
    kafka.wait_until_group_stable("readers", members=1, poll=lambda: consumer.poll(0))
    try:
        yield
    finally:
        consumer.close()


def reset(cli: Cli, *arguments: str) -> list[int]:
    rows = cli.json("group", "reset-offsets", "readers", *arguments)
    return [row["new_offset"] for row in rows]


def committed(cli: Cli) -> list[int]:
    [group] = cli.json("group", "describe", "readers")
    return [row["committed"] for row in group["partitions"]]


def test_describe_shows_the_lag_in_records_and_in_seconds(cli: Cli, pages: str) -> None:
    [group] = cli.json("group", "describe", "readers")
    assert [row["lag"] for row in group["partitions"]] == [3, 3]
    assert group["lag"] == 6
    assert 3 * 3600 <= group["lag_s"] < 4 * 3600
    cli.ok("group", "reset-offsets", "readers", "--topic", "pages:1", "--to-latest", "--execute")
    [group] = cli.json("group", "describe", "readers")
    assert group["partitions"][1]["lag_s"] == 0.0
    assert "6 records" not in cli.ok("group", "describe", "readers")


def header(cli: Cli) -> str:
    return cli.ok("group", "describe", "readers").splitlines()[0]


def test_lag_in_seconds_is_unknown_where_only_a_marker_is_left(cli: Cli, moved: str) -> None:
    [group] = cli.json("group", "describe", "readers")
    [row] = group["partitions"]
    assert (row["lag"], row["lag_s"]) == (1, None)
    assert (group["lag"], group["lag_s"], group["lag_s_unknown"]) == (1, None, 1)
    assert header(cli).endswith("lag 1 records, -")


def test_lag_in_seconds_is_a_minimum_when_a_partition_has_an_unknown_lag(
    cli: Cli, kafka: Broker, moved: str
) -> None:
    commit(kafka, Position("moved", 1, 0))
    [group] = cli.json("group", "describe", "readers")
    assert [row["lag"] for row in group["partitions"]] == [1, 2]
    assert 3600 <= group["lag_s"] < 2 * 3600
    assert group["lag_s_unknown"] == 1
    assert "lag 3 records, at least 3" in header(cli)
    commit(kafka, Position("moved", 0, 2), Position("moved", 1, 2))
    assert header(cli).endswith("lag 0 records, 0.0 s")


@pytest.mark.parametrize("verb", ["describe", "members"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_unknown_group_is_refused(
    cli: Cli, verb: str, options: tuple[str, ...], pages: str
) -> None:
    result = cli("group", verb, "nosuch", *options)
    assert result.exit_code == 1
    assert str(result.exception) == NO_SUCH_GROUP
    assert result.stdout == ""


def test_existing_groups_are_shown_before_the_error(cli: Cli, pages: str) -> None:
    result = cli("group", "describe", "nosuch", "readers", "--json")
    assert [each["group"] for each in json.loads(result.stdout)] == ["readers"]
    assert str(result.exception) == NO_SUCH_GROUP


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", ""),
        ("members", ""),
        ("delete", ""),
        ("reset-offsets", "", "-t", "t", "--to-latest"),
    ],
)
def test_empty_group_id_is_refused(cli: Cli, arguments: tuple[str, ...]) -> None:
    refused = str(cli("group", *arguments).exception)
    assert refused.startswith("A group id must not be empty.")


def test_error_is_the_same_if_the_broker_reports_an_unknown_group() -> None:
    """Newer brokers report an error in place of a group in the state Dead (KIP-1043)."""
    future: Future[None] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError.GROUP_ID_NOT_FOUND, "not here")))
    with pytest.raises(CommandError, match="Group 'nosuch' does not exist"):
        wait(future, Subject("group", "nosuch"))


def test_members_are_listed_with_their_partitions(cli: Cli, kafka: Broker, pages: str) -> None:
    with member(kafka):
        [row] = cli.json("group", "members", "readers")
        assert (row["client_id"], row["partitions"]) == ("app", ["pages-0", "pages-1"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [5, 5]),
        (("--to-current",), [2, 2]),
        (("--to-offset", "4"), [4, 4]),
        (("--to-offset", "99"), [5, 5]),
        (("--shift-by", "-1"), [1, 1]),
        (("--shift-by", "-9"), [0, 0]),
        (("--by-duration", "PT2H"), [3, 3]),
        (("--by-duration", "P1D"), [0, 0]),
        (("--by-duration", "PT0.001S"), [5, 5]),
        (("--to-datetime", "2001-01-01T00:00:00"), [0, 0]),
        (("--to-datetime", "1960-01-01"), [0, 0]),
        (("--to-datetime", "1969-12-31T23:59:59.999+00:00"), [0, 0]),  # -1 would mean the end
        (("--by-duration", "P40000D"), [0, 0]),
        (("--by-duration", "P99999999999999D"), [0, 0]),
    ],
)
def test_reset_sets_offsets_only_with_execute(
    cli: Cli, pages: str, arguments: tuple[str, ...], expected: list[int]
) -> None:
    assert reset(cli, "--topic", "pages", *arguments) == expected
    assert committed(cli) == [2, 2]
    assert reset(cli, "--all-topics", "--execute", *arguments) == expected
    assert committed(cli) == expected


def test_reset_of_one_partition_leaves_the_others(cli: Cli, pages: str) -> None:
    assert reset(cli, "--topic", "pages:1", "--to-latest", "--execute") == [5]
    assert committed(cli) == [2, 5]


def test_reset_says_that_nothing_was_changed(cli: Cli, pages: str) -> None:
    shown = cli.ok("group", "reset-offsets", "readers", "--all-topics", "--to-earliest")
    assert "Nothing was changed. Add --execute" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topic", "pages"), "Exactly one target is needed"),
        (("--topic", "pages", "--to-latest", "--to-earliest"), "Exactly one target is needed"),
        (("--to-latest",), "Name the partitions"),
        (("--topic", "none", "--to-latest"), "Topic 'none' does not exist"),
        (("--topic", "pages:7", "--to-latest"), "Topic 'pages' has no partition 7"),
        (("--topic", "pages", "--by-duration", "1h"), "PnDTnHnMnS"),
        (("--topic", "pages", "--to-datetime", "noon"), "ISO 8601"),
        (("--topic", "pages", "--to-datetime", str(2**63)), "ISO 8601"),
        (("--topic", "pages", "--to-datetime", "\u00b2"), "ISO 8601"),
    ],
)
def test_reset_refuses_invalid_options(
    cli: Cli, pages: str, arguments: tuple[str, ...], message: str
) -> None:
    result = cli("group", "reset-offsets", "readers", *arguments)
    assert result.exit_code == 1
    assert message in str(result.exception)


def test_reset_and_delete_are_refused_while_there_are_members(
    cli: Cli, kafka: Broker, pages: str
) -> None:
    with member(kafka):
        result = cli("group", "reset-offsets", "readers", "--all-topics", "--to-latest")
        assert "has 1 members" in str(result.exception)
        assert cli("group", "delete", "readers").exit_code == 1
    assert "deleted group readers" in cli.ok("group", "delete", "readers")
    assert cli.json("group", "list") == []


def test_delete_reports_the_result_of_each_group_in_json(cli: Cli, pages: str) -> None:
    result = cli("group", "delete", "readers", "nosuch", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == [
        {"group": "readers", "error": None},
        {"group": "nosuch", "error": NO_SUCH_GROUP},
    ]
    assert str(result.exception) == NO_SUCH_GROUP
