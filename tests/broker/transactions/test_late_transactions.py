"""Late transactions (rule V5, KIP-664) are counted, and logged once by the broker."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from odradek.broker.broker import BrokerServer
from odradek.broker.transactions.late_transactions import (
    LateTransactionWatch,
    finding_late_transactions,
)
from odradek.ids import TopicPartition
from odradek.log.state.producer_state_manager import LateTransaction
from odradek.slicing import run_to_completion
from odradek.testing import Broker
from tests.helpers.transactions import end_transaction, produce_plain, produce_transactional

MAX_TIMEOUT_MS = 600_000
LATE_S = MAX_TIMEOUT_MS / 1000 + 300.0
TIMEOUT_S = 120


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"transaction.max.timeout.ms": MAX_TIMEOUT_MS}) as broker:
        broker.create_topic("t", 2)
        yield broker


def late_count(broker: Broker) -> int:
    async def count(server: BrokerServer) -> int:
        services = server.services
        now_ms = services.clock.time_ms()
        partitions = services.replica_manager.partitions()
        late = finding_late_transactions(partitions, now_ms, MAX_TIMEOUT_MS)
        return len(run_to_completion(late))

    return broker.call(count)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for each in caplog.records if "late transaction" in (text := each.getMessage())]


def test_late_transaction_is_counted_and_logged_once_until_it_is_aborted(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    produce_plain(broker, b"before", partition=1)
    assert produce_transactional(broker, 7, 0, b"1", partition=1) == 1
    broker.advance(LATE_S - 60)
    broker.advance(1)
    assert late_count(broker) == 0
    assert logged(caplog) == []
    for _ in range(3):
        broker.advance(61)
    assert late_count(broker) == 1
    [line] = logged(caplog)
    found = re.fullmatch(
        r"t-1 has a late transaction: producer id 7, start offset 1, age_ms (\d+)\. .*", line
    )
    assert found is not None, line
    assert int(found[1]) > LATE_S * 1000
    end_transaction(broker, 7, committed=False, partition=1)
    assert late_count(broker) == 0


def test_next_late_transaction_of_the_partition_is_logged_too(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    produce_transactional(broker, 7, 0, b"1")
    produce_transactional(broker, 8, 0, b"1")
    for _ in range(2):
        broker.advance(LATE_S + 1)
    end_transaction(broker, 7, committed=False)
    for _ in range(2):
        broker.advance(1)
    assert [re.findall(r"producer id (\d+)", line) for line in logged(caplog)] == [["7"], ["8"]]


def test_transaction_that_its_coordinator_aborts_is_never_logged(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """This holds even if the clock jumps beyond all limits, as after a sleep of the machine."""
    caplog.set_level(logging.WARNING)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "sleeper"}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("t", b"1", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    broker.advance(10 * LATE_S)
    broker.wait_for_open_transactions(0, timeout_s=TIMEOUT_S)
    broker.wait_for_high_watermark("t", 2, timeout_s=TIMEOUT_S)
    broker.advance(1)
    assert late_count(broker) == 0
    assert logged(caplog) == []


KEY = TopicPartition("t", 0)
FIRST, SECOND = LateTransaction(1, 0, 5), LateTransaction(2, 9, 6)


def test_watch_reports_a_transaction_once_after_two_checks() -> None:
    watch = LateTransactionWatch()
    assert watch.update({KEY: FIRST}) == {}
    assert watch.update({KEY: FIRST}) == {KEY: FIRST}
    assert watch.update({KEY: FIRST}) == {}
    assert watch.update({KEY: SECOND}) == {}
    assert watch.update({KEY: SECOND}) == {KEY: SECOND}


def test_watch_forgets_transactions_that_have_ended() -> None:
    watch = LateTransactionWatch()
    for late in ({KEY: FIRST}, {KEY: FIRST}, {}, {KEY: FIRST}):
        logged_again = watch.update(late)
    assert logged_again == {}, "one check"
    assert watch.update({KEY: FIRST}) == {KEY: FIRST}
