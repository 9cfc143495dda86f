"""Lines on stderr while `odradek produce` retries."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError

from odradek.cli.produce import _producer
from odradek.cli.retry_notices import (
    NOTICE_INTERVAL_MS,
    OUTAGE_CONFIRMED_MS,
    RetryNotices,
)
from odradek.environment.clock import ManualClock

if TYPE_CHECKING:
    from odradek.testing import Broker

    from .conftest import Cli

DISK = "Broker: Disk error when trying to access log file on disk"
LEADER = "Broker: Not leader for partition"
POLLS_MAX = 600
POLL_S = 0.1


class Notices:
    """`RetryNotices` with a clock of the test, and the lines written."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lines: list[str] = []
        self.notices = RetryNotices("t", "127.0.0.1:9092", self.clock, self.lines.append)

    def refused(self, error: str, partition: int = 0, actions: str = "Refresh,Retry") -> None:
        self._batch(partition, f"encountered error: {error} (actions {actions})")

    def delivered(self, partition: int = 0) -> None:
        self._batch(partition, "delivered")

    def _batch(self, partition: int, outcome: str) -> None:
        line = f"[thrd:a:1/1]: a:1/1: t [{partition}]: MessageSet with 1 message(s) (MsgId 0) "
        self.notices.log_line(logging.DEBUG, line + outcome)

    def client_error(self, code: int, text: str) -> None:
        self.notices.client_error(KafkaError(code, text))

    def lost(self) -> None:
        self.client_error(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")

    def not_connected(self) -> None:
        text = "a:1/bootstrap: Connect to ipv4#a:1 failed: Connection refused (after 0ms in state"
        self.client_error(KafkaError._TRANSPORT, f"{text} CONNECT)")


@pytest.fixture
def seen() -> Notices:
    return Notices()


def test_error_is_written_once_with_partition_and_cause(seen: Notices) -> None:
    for _ in range(100):
        seen.refused(DISK)
        seen.clock.advance(NOTICE_INTERVAL_MS)
    assert seen.lines == [
        f"t, partition 0: {DISK}. The records are sent again. The log of the broker has the cause."
    ]


def test_same_error_of_other_partitions_is_not_repeated(seen: Notices) -> None:
    for partition in range(50):
        seen.refused(DISK, partition)
        seen.clock.advance(NOTICE_INTERVAL_MS)
    assert len(seen.lines) == 1


def test_other_error_is_written_when_the_interval_is_over(seen: Notices) -> None:
    seen.refused(DISK)
    seen.clock.advance(NOTICE_INTERVAL_MS - 1)
    seen.refused(LEADER)
    assert len(seen.lines) == 1
    seen.clock.advance(1)
    seen.refused(LEADER)
    assert [LEADER in line for line in seen.lines] == [False, True]


@pytest.mark.parametrize(("partition", "count"), [(0, 2), (1, 1)])
def test_error_is_written_again_after_a_delivery_to_its_partition(
    seen: Notices, partition: int, count: int
) -> None:
    seen.refused(DISK)
    seen.delivered(partition)
    seen.refused(DISK)
    assert len(seen.lines) == 1
    seen.clock.advance(NOTICE_INTERVAL_MS)
    seen.refused(DISK)
    assert len(seen.lines) == count


def test_errors_that_alternate_write_one_line_in_each_interval(seen: Notices) -> None:
    for _ in range(10 * NOTICE_INTERVAL_MS // 100):
        seen.refused(DISK)
        seen.refused(LEADER)
        seen.delivered()
        seen.clock.advance(100)
    assert len(seen.lines) == 10


def test_permanent_error_is_left_to_the_delivery_report(seen: Notices) -> None:
    seen.refused("Broker: Message size too large", actions="Permanent,MsgNotPersisted")
    assert seen.lines == []


def test_critical_line_of_the_client_is_shown_and_others_are_not(seen: Notices) -> None:
    seen.notices.log_line(logging.CRITICAL, "out of memory")
    seen.notices.log_line(logging.ERROR, "a:1/1: Connect failed")
    assert seen.lines == ["out of memory"]


def test_lost_connection_is_written_once_when_connecting_still_fails(seen: Notices) -> None:
    seen.lost()
    seen.not_connected()
    assert seen.lines == []
    for _ in range(5):
        seen.clock.advance(OUTAGE_CONFIRMED_MS)
        seen.lost()
        seen.not_connected()
    [line] = seen.lines
    assert line.startswith(
        "t: no broker responds at 127.0.0.1:9092 (Connect to ipv4#a:1 failed: Connection refused)."
    )


def test_one_of_several_servers_that_refuses_is_no_outage(seen: Notices) -> None:
    seen.not_connected()
    seen.clock.advance(OUTAGE_CONFIRMED_MS)
    seen.not_connected()
    assert seen.lines == []


def test_connection_that_comes_back_is_no_outage(seen: Notices) -> None:
    seen.lost()
    seen.delivered()
    seen.clock.advance(OUTAGE_CONFIRMED_MS)
    seen.not_connected()
    assert seen.lines == []


@pytest.mark.parametrize("options", [(), ("--transactional-id", "mover"), ("--json",)])
def test_produce_shows_one_line_while_the_disk_of_the_broker_fails(
    cli: Cli, kafka: Broker, options: tuple[str, ...]
) -> None:
    cli.ok("topic", "create", "t")
    expected = cli("produce", "t", *options, input="one\n")
    with kafka.fail("Produce", "KAFKA_STORAGE_ERROR", topic="t", times=3) as fault:
        result = cli("produce", "t", *options, input="two\n")
        assert fault.struck == 3
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == len(expected.stdout.splitlines())
    notice, *rest = result.stderr.splitlines()
    assert notice.startswith(f"odradek: t, partition 0: {DISK}.")
    assert rest == expected.stderr.splitlines()
    assert cli.ok("consume", "t") == "one\ntwo\n"


def test_producer_reports_a_broker_that_is_unreachable() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))  # refuses connections, because it does not listen
        address = f"127.0.0.1:{server.getsockname()[1]}"
        clock = ManualClock()
        lines: list[str] = []
        notices = RetryNotices("t", address, clock, lines.append)
        producer = _producer(address, "all", "none", None, notices)
        poll_until(producer.poll, clock, lines)
    [line] = lines
    assert line.startswith(f"t: no broker responds at {address} (")
    assert "Connection refused" in line


def poll_until(poll: Callable[[float], object], clock: ManualClock, lines: list[str]) -> None:
    for _ in range(POLLS_MAX):
        poll(POLL_S)
        clock.advance(OUTAGE_CONFIRMED_MS)
        if lines:
            return
    raise AssertionError("no line was written")
