"""`odradek group` against a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position

if TYPE_CHECKING:
    from odradek.testing import Broker

    from .conftest import Cli

TIMEOUT_S = 120
HOUR_MS = 3_600_000
# A machine that stands still does not end a session.
PATIENT = {"session.timeout.ms": 600_000, "max.poll.interval.ms": 900_000}


@pytest.fixture
def pages(kafka: Broker) -> str:
    """A topic of two partitions with five records in each; group "readers" has committed offset 2
    of both. Records are three hours old, and offset 3 is one hour old."""
    kafka.create_topic("pages", partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    now_ms = int(time.time() * 1000)
    for number in range(5):
        age_ms = HOUR_MS if number >= 3 else 3 * HOUR_MS
        for partition in range(2):
            producer.produce("pages", b"v", partition=partition, timestamp=now_ms - age_ms)
    assert producer.flush(TIMEOUT_S) == 0
    servers = kafka.bootstrap_servers
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers", **PATIENT})
    consumer.commit(offsets=[Position("pages", p, 2) for p in range(2)], asynchronous=False)
    consumer.close()
    return "pages"


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


def test_describe_tells_the_lag_in_records_and_in_seconds(cli: Cli, pages: str) -> None:
    [group] = cli.json("group", "describe", "readers")
    assert [row["lag"] for row in group["partitions"]] == [3, 3]
    assert group["lag"] == 6
    assert 3 * 3600 <= group["lag_s"] < 4 * 3600
    cli.ok("group", "reset-offsets", "readers", "--topic", "pages:1", "--to-latest", "--execute")
    [group] = cli.json("group", "describe", "readers")
    assert group["partitions"][1]["lag_s"] == 0.0
    assert "6 records" not in cli.ok("group", "describe", "readers")


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
    ],
)
def test_reset_shows_first_and_sets_when_told_to(
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
    assert "nothing was changed: add --execute" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topic", "pages"), "say where to, once"),
        (("--topic", "pages", "--to-latest", "--to-earliest"), "say where to, once"),
        (("--to-latest",), "name the partitions"),
        (("--topic", "none", "--to-latest"), "no topic none"),
        (("--topic", "pages:7", "--to-latest"), "pages has no partition 7"),
        (("--topic", "pages", "--by-duration", "1h"), "PnDTnHnMnS"),
        (("--topic", "pages", "--to-datetime", "noon"), "ISO 8601"),
    ],
)
def test_reset_refuses_what_is_not_clear(
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
