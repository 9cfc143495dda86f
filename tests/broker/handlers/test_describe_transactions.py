"""DescribeTransactions over the wire."""

from __future__ import annotations

import time

from odradek.errors import ErrorCode
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.txn_calls import TIMEOUT_MS, add, describe, end, producer, wait_for


def test_transaction_is_described_with_its_partitions(broker: Broker, client: WireClient) -> None:
    broker.create_topic("b", 3)
    broker.create_topic("a")
    who = producer(client)
    before = time.time() * 1000 - 1
    add(client, who, "b2", "a0", "b0")
    [state] = describe(client)
    assert state.error_code == 0
    assert (state.transactional_id, state.transaction_state) == ("x", "Ongoing")
    assert (state.producer_id, state.producer_epoch) == who
    assert state.transaction_timeout_ms == TIMEOUT_MS
    assert before <= state.transaction_start_time_ms <= time.time() * 1000 + 1
    assert [(each.topic, each.partitions) for each in state.topics] == [("a", [0]), ("b", [0, 2])]
    end(client, who)
    wait_for(client, "CompleteCommit")
    assert describe(client)[0].topics == []


def test_id_without_a_transaction(client: WireClient) -> None:
    producer(client)
    [state] = describe(client)
    assert (state.transaction_state, state.transaction_start_time_ms, state.topics) == (
        "Empty",
        -1,
        [],
    )


def test_each_id_has_its_own_error(client: WireClient) -> None:
    producer(client)
    found = describe(client, "nobody", "x", "", "x")
    assert [(each.transactional_id, each.error_code) for each in found] == [
        ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("x", 0),
        ("", ErrorCode.INVALID_REQUEST),
    ]
