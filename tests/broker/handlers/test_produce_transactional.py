"""Produce with a transactional id: accepted and refused batches of transactions."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.testing import Broker
from testkit.requests import batch, fetch
from testkit.wire import ConnectionClosed, WireClient
from tests.broker.handlers.txn_calls import (
    Who,
    add,
    describe,
    end,
    eventually,
    init,
    producer,
    wait_for,
)
from tests.helpers.transactions import produce_plain

E = ErrorCode
BEFORE_ABORTABLE, ABORTABLE, ADD_PARTITION = 10, 11, 12


def of(who: Who, sequence: int = 0, *values: bytes, transactional: bool = True) -> bytearray:
    """Return a batch of the producer's transaction."""
    return batch(
        *values,
        transactional=transactional,
        producer_id=who[0],
        producer_epoch=who[1],
        base_sequence=sequence,
    )


def request(*records: Any, name: str | None = "x", acks: int = -1) -> ProduceRequest:
    """Return a request that appends `records` to the partitions 0, 1, ... of t."""
    data = [PartitionProduceData(partition, each) for partition, each in enumerate(records)]
    return ProduceRequest(name, acks, 10_000, [TopicProduceData("t", partition_data=data)])


def send(client: WireClient, *records: Any, version: int = 11, **options: Any) -> list[ErrorCode]:
    (topic,) = client.call(request(*records, **options), version).responses
    return [ErrorCode(each.error_code) for each in topic.partition_responses]


def offsets(client: WireClient, partition: int = 0) -> tuple[int, int]:
    """Return (last stable offset, high watermark)."""
    partition_data = client.call(fetch(partitions=(partition,)), 11).responses[0].partitions[0]
    return partition_data.last_stable_offset, partition_data.high_watermark


def test_transactional_batch_needs_a_transactional_id(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 2)
    refused = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert send(client, of((7, 0)), name=None) == [refused]
    assert send(client, batch(b"plain"), of((7, 0)), name=None) == [refused, refused]
    assert offsets(client) == (0, 0), "the whole request is refused"
    assert send(client, batch(b"plain"), b"short", name=None)[0] is E.NONE


def test_batches_of_two_producers_are_refused_together(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 2)
    refused = E.INVALID_PRODUCER_ID_MAPPING
    assert send(client, of((7, 0)), of((8, 0))) == [refused, refused]
    assert send(client, of((7, 0)), of((7, 1))) == [refused, refused]


def test_refusal_of_a_whole_request_with_acks_0_closes_the_connection(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t", 2)
    client.send(request(of((7, 0)), of((8, 0)), acks=0), 9)
    with pytest.raises(ConnectionClosed):
        client.receive()


def test_unknown_coordinator_is_a_retriable_error(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    response = client.call(request(of((7, 0))), 11)
    (partition_response,) = response.responses[0].partition_responses
    assert partition_response.error_code == E.NOT_ENOUGH_REPLICAS
    assert "Unable to verify" in partition_response.error_message


@pytest.mark.parametrize(
    ("version", "code"),
    [(BEFORE_ABORTABLE, E.INVALID_TXN_STATE), (ABORTABLE, E.TRANSACTION_ABORTABLE)],
)
def test_partition_that_was_not_added_is_refused(
    broker: Broker, client: WireClient, version: int, code: ErrorCode
) -> None:
    broker.create_topic("t", 2)
    who = producer(client)
    add(client, who, "t0")
    assert send(client, of(who), of(who), version=version) == [E.NONE, code]
    assert offsets(client) == (0, 1)
    assert offsets(client, 1) == (0, 0)


def test_open_transaction_is_not_verified_again(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    who = producer(client)
    add(client, who, "t0")
    assert send(client, of(who, 0)) == [E.NONE]

    async def no_coordinator(server: Any) -> None:
        server.services.transactions.stop()

    broker.call(no_coordinator)
    assert send(client, of(who, 1)) == [E.NONE]
    assert send(client, of((who[0] + 1, 0), 0)) == [E.NOT_ENOUGH_REPLICAS]


def test_newer_client_adds_the_partition_by_writing(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 2)
    who = producer(client)
    assert send(client, of(who), of(who), version=ADD_PARTITION) == [E.NONE, E.NONE]
    (state,) = describe(client)
    assert state.transaction_state == "Ongoing"
    assert [(each.topic, sorted(each.partitions)) for each in state.topics] == [("t", [0, 1])]


def test_newer_client_without_producer_state_begins_at_sequence_zero(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    who = producer(client)
    assert send(client, of(who, 4), version=ADD_PARTITION) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert send(client, of(who, 0), version=ADD_PARTITION) == [E.NONE]


def test_late_batch_after_the_end_does_not_hold_the_last_stable_offset(
    broker: Broker, client: WireClient
) -> None:
    """KAFKA-12671: a batch that arrives after the end of its transaction is refused."""
    broker.create_topic("t")
    who = producer(client)
    add(client, who, "t0")
    assert send(client, of(who, 0)) == [E.NONE]
    end(client, who, committed=False)
    wait_for(client, "CompleteAbort")
    assert send(client, of(who, 1)) == [E.TRANSACTION_ABORTABLE]
    produce_plain(broker, b"behind")
    assert offsets(client) == (3, 3)


def test_fenced_producer_writes_nothing(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 2)
    old = producer(client)
    add(client, old, "t0")
    assert send(client, of(old)) == [E.NONE]
    eventually(lambda: init(client).error_code == E.NONE)
    assert send(client, of(old, 1), of(old)) == [E.INVALID_PRODUCER_EPOCH] * 2


def test_non_transactional_batch_of_a_producer_in_a_transaction_is_refused(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    who = producer(client)
    add(client, who, "t0")
    assert send(client, of(who, 0)) == [E.NONE]
    plain = of(who, 1, transactional=False)
    assert send(client, plain) == [E.INVALID_TXN_STATE]
    assert send(client, plain, name=None) == [E.INVALID_TXN_STATE]


def test_non_transactional_batch_may_have_a_transactional_id_in_its_request(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    assert send(client, batch(b"a")) == [E.NONE]
    assert offsets(client) == (1, 1)


@pytest.mark.parametrize("config", [{"transaction.partition.verification.enable": False}])
def test_without_verification_the_coordinator_only_adds_partitions(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t", 2)
    who = producer(client)
    assert send(client, of(who)) == [E.NONE]
    assert describe(client)[0].transaction_state == "Empty"
    assert send(client, batch(), of(who), version=ADD_PARTITION) == [E.NONE, E.NONE]
    assert describe(client)[0].transaction_state == "Ongoing"


@pytest.mark.parametrize("config", [{"log.flush.interval.messages": 1}])
def test_requests_after_one_that_waits_for_the_coordinator_keep_their_order(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t")
    who = producer(client)
    for sequence in range(5):
        client.send(request(of(who, sequence, b"%d" % sequence)), ADD_PARTITION)
    responses = [client.receive().responses[0].partition_responses[0] for _ in range(5)]
    assert [(each.error_code, each.base_offset) for each in responses] == [
        (0, offset) for offset in range(5)
    ]


@pytest.mark.parametrize("compression", ["zstd", "producer"])
def test_topic_with_validated_records_accepts_transactions(
    broker: Broker, client: WireClient, compression: str
) -> None:
    broker.create_topic("t", config={"compression.type": compression, "cleanup.policy": "delete"})
    who = producer(client)
    assert send(client, of(who, 0, b"a" * 500), version=ADD_PARTITION) == [E.NONE]
    assert offsets(client) == (0, 1)
