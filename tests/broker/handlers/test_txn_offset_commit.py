"""TxnOffsetCommit over the wire: pending and stable offsets, verification, fencing, librdkafka."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from odradek.protocol.messages.end_txn_request import EndTxnRequest
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest
from odradek.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import commit, find
from tests.broker.handlers.txn_calls import wait_for

E = ErrorCode
DEADLINE_S = 120.0


class Transaction:
    """A producer that commits offsets of the group "g" with single requests."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=600_000)
        while True:
            response = client.call(request, 4)
            if response.error_code not in (
                E.COORDINATOR_NOT_AVAILABLE,
                E.COORDINATOR_LOAD_IN_PROGRESS,
                E.NOT_COORDINATOR,
                E.CONCURRENT_TRANSACTIONS,
            ):
                break
        assert response.error_code == 0
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def begin(self) -> ErrorCode:
        request = AddOffsetsToTxnRequest("x", self.producer_id, self.epoch, "g")
        return ErrorCode(self.client.call(request, 3).error_code)

    def commit_offset(self, version: int = 4, offset: int = 9, **options: object) -> ErrorCode:
        partition = TxnOffsetCommitRequestPartition(0, offset, -1, "")
        request = TxnOffsetCommitRequest(
            "x",
            "g",
            self.producer_id,
            self.epoch,
            topics=[TxnOffsetCommitRequestTopic("t", [partition])],
        )
        for name, value in options.items():
            setattr(request, name, value)
        response = self.client.call(request, version)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def end(self, committed: bool) -> None:
        request = EndTxnRequest("x", self.producer_id, self.epoch, committed)
        assert self.client.call(request, 3).error_code == 0


def fetched(client: WireClient, *, stable: bool = True) -> tuple[ErrorCode, int]:
    group = OffsetFetchRequestGroup(
        "g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    )
    request = OffsetFetchRequest(groups=[group], require_stable=stable)
    response = client.call(request, 9).groups[0]
    assert response.error_code == 0, ErrorCode(response.error_code).name
    partition = response.topics[0].partitions[0]
    return ErrorCode(partition.error_code), partition.committed_offset


def settled(client: WireClient) -> int:
    """Return the stable offset. Wait for the markers, which follow the response to EndTxn."""
    while True:
        code, offset = fetched(client)
        if code is not E.UNSTABLE_OFFSET_COMMIT:
            assert code is E.NONE
            return offset


@pytest.fixture
def transaction(broker: Broker, client: WireClient) -> Transaction:
    broker.create_topic("t")
    find(client)
    commit(client)
    return Transaction(client)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("committed", [True, False])
def test_offsets_are_unstable_until_the_transaction_ends(
    client: WireClient, transaction: Transaction, version: int, committed: bool
) -> None:
    assert transaction.begin() is E.NONE
    assert transaction.commit_offset(version) is E.NONE
    assert fetched(client) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetched(client, stable=False) == (E.NONE, 5)
    transaction.end(committed)
    assert settled(client) == (9 if committed else 5)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("stable_first", [True, False])
def test_first_fetch_after_a_transaction_returns_its_offset(
    client: WireClient, transaction: Transaction, committed: bool, stable_first: bool
) -> None:
    """redpanda#9571, redpanda#10669: a fetch immediately after the commit must not return the
    previous offset, with or without `require_stable`.
    """
    assert transaction.begin() is E.NONE
    assert transaction.commit_offset() is E.NONE
    transaction.end(committed)
    wait_for(client, "CompleteCommit" if committed else "CompleteAbort")
    current = (E.NONE, 9 if committed else 5)
    assert fetched(client, stable=stable_first) == current
    assert fetched(client, stable=not stable_first) == current


@pytest.mark.parametrize(
    ("version", "expected"),
    [(0, E.INVALID_TXN_STATE), (3, E.INVALID_TXN_STATE), (4, E.TRANSACTION_ABORTABLE)],
)
def test_groups_that_are_not_in_the_transaction_are_refused(
    client: WireClient, transaction: Transaction, version: int, expected: ErrorCode
) -> None:
    assert transaction.commit_offset(version) is expected
    assert fetched(client) == (E.NONE, 5)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("known", [True, False])
def test_empty_group_id_is_refused_before_the_verification(
    transaction: Transaction, version: int, known: bool
) -> None:
    """As in Apache Kafka 4.1, this holds for every sender, even without a transactional id."""
    if not known:
        transaction.producer_id += 1_000
    assert transaction.commit_offset(version, group_id="") is E.INVALID_GROUP_ID
    assert transaction.commit_offset(version, group_id="", transactional_id="") is (
        E.INVALID_GROUP_ID
    )
    assert transaction.commit_offset(version, transactional_id="") is E.INVALID_REQUEST


@pytest.mark.parametrize("config", [{"transaction.partition.verification.enable": "false"}])
def test_verification_can_be_disabled(client: WireClient, transaction: Transaction) -> None:
    assert transaction.commit_offset() is E.NONE
    assert fetched(client) == (E.UNSTABLE_OFFSET_COMMIT, -1)


def test_version_5_adds_the_group_to_the_transaction(
    client: WireClient, transaction: Transaction
) -> None:
    assert transaction.commit_offset(5) is E.NONE
    transaction.end(True)
    assert settled(client) == 9


def test_an_old_generation_is_fenced(transaction: Transaction) -> None:
    assert transaction.begin() is E.NONE
    member = {"generation_id": 3, "member_id": "gone"}
    assert transaction.commit_offset(3, **member) is E.UNKNOWN_MEMBER_ID
    assert transaction.commit_offset(3, group_id="other", generation_id=3) in (
        E.ILLEGAL_GENERATION,
        E.TRANSACTION_ABORTABLE,
        E.INVALID_TXN_STATE,
    )


def test_confluent_kafka_sends_offsets_with_its_transaction(broker: Broker) -> None:
    broker.create_topic("in")
    broker.create_topic("out")
    plain = {"bootstrap.servers": broker.bootstrap_servers}
    consumer = Consumer({**plain, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["in"])
    writer = Producer(plain)
    writer.produce("in", b"1")
    assert writer.flush(DEADLINE_S) == 0
    message = consumer.poll(DEADLINE_S)
    assert message is not None
    assert message.error() is None
    producer = Producer({**plain, "transactional.id": "x"})
    producer.init_transactions(DEADLINE_S)
    for commits in (False, True):
        producer.begin_transaction()
        producer.produce("out", b"2")
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), DEADLINE_S
        )
        if commits:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)
        (found,) = consumer.committed([TopicPartition("in", 0)], DEADLINE_S)
        assert found.offset == (1 if commits else -1001)
    consumer.close()
