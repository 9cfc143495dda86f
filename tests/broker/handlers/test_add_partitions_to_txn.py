"""AddPartitionsToTxn over the wire, in the forms of producers and of brokers."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.txn_calls import (
    add,
    add_batched,
    describe,
    end,
    init,
    producer,
    transaction,
)

E = ErrorCode


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(broker: Broker, client: WireClient, version: int) -> None:
    broker.create_topic("t", 3)
    who = producer(client)
    assert add(client, who, "t0", "t2", version=version) == {"t0": E.NONE, "t2": E.NONE}
    assert add(client, who, "t2", "t1", version=version) == {"t2": E.NONE, "t1": E.NONE}
    [state] = describe(client)
    assert state.transaction_state == "Ongoing"
    assert [(each.topic, each.partitions) for each in state.topics] == [("t", [0, 1, 2])]


@pytest.mark.parametrize("version", range(4))
def test_missing_partition_refuses_the_whole_transaction(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t")
    who = producer(client)
    assert add(client, who, "t0", "t1", "u0", version=version) == {
        "t0": E.OPERATION_NOT_ATTEMPTED,
        "t1": E.UNKNOWN_TOPIC_OR_PARTITION,
        "u0": E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert describe(client)[0].transaction_state == "Empty"


@pytest.mark.parametrize("version", range(4))
def test_fenced_producer_gets_the_error_code_of_its_version(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t")
    who = producer(client)
    init(client)
    expected = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
    assert add(client, who, "t0", version=version) == {"t0": expected}


def test_unknown_transactional_ids_and_producers_are_refused(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    who = producer(client)
    assert add(client, (who[0] + 1, 0), "t0") == {"t0": E.INVALID_PRODUCER_ID_MAPPING}
    assert add(client, who, "t0", name="nobody") == {"t0": E.INVALID_PRODUCER_ID_MAPPING}
    assert add(client, who, "t0", name="") == {"t0": E.INVALID_REQUEST}


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_are_verified_at_once(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t", 2)
    one, two = producer(client, "one"), producer(client, "two")
    add(client, one, "t0", name="one")
    add(client, two, "t0", "t1", name="two")
    results = add_batched(
        client,
        transaction(one, "t0", "t1", name="one", verify_only=True),
        transaction(two, "t1", name="two", verify_only=True),
        transaction(two, "t0", name="one", verify_only=True),
        transaction((two[0], 7), "t0", name="two", verify_only=True),
        transaction(one, "u0", "t0", name="one", verify_only=True),
        version=version,
    )
    assert results == [
        {"t0": E.NONE, "t1": E.TRANSACTION_ABORTABLE},
        {"t1": E.NONE},
        {"t0": E.INVALID_PRODUCER_ID_MAPPING},
        {"t0": E.PRODUCER_FENCED},
        {"u0": E.UNKNOWN_TOPIC_OR_PARTITION, "t0": E.OPERATION_NOT_ATTEMPTED},
    ]
    assert describe(client, "one")[0].topics[0].partitions == [0], "verifying adds nothing"


@pytest.mark.parametrize("version", [4, 5])
def test_batched_transactions_are_added_unless_only_verified(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t", 2)
    one, two = producer(client, "one"), producer(client, "two")
    results = add_batched(
        client,
        transaction(one, "t0", name="one"),
        transaction(two, "t1", name="two", verify_only=True),
        version=version,
    )
    assert results == [{"t0": E.NONE}, {"t1": E.TRANSACTION_ABORTABLE}]
    states = [each.transaction_state for each in describe(client, "one", "two")]
    assert states == ["Ongoing", "Empty"]


@pytest.mark.parametrize("config", [{"log.flush.interval.messages": 1}])
def test_responses_wait_for_the_disk_and_for_all_transactions(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t", 2)
    one, two = producer(client, "one"), producer(client, "two")
    results = add_batched(
        client, transaction(one, "t0", name="one"), transaction(two, "t1", name="two")
    )
    assert results == [{"t0": E.NONE}, {"t1": E.NONE}]
    assert add(client, one, "t1", name="one") == {"t1": E.NONE}
    assert end(client, one, name="one").error_code == 0


def test_request_without_transactions_has_an_empty_response(client: WireClient) -> None:
    assert add_batched(client) == []
