"""Verification of transactions by a coordinator on another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from odradek.broker.transactions.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from odradek.client.connection import ConnectionClosed, UnsupportedRequest
from odradek.errors import ErrorCode
from odradek.ids import BrokerId, TopicPartition
from odradek.metadata.image import BrokerRegistration, MetadataImage
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.topics import TRANSACTION_STATE
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from odradek.results import Result
from tests.broker.transactions.test_marker_sender import image_of, steps
from tests.helpers.peer_requests import RecordedRequests, Sent

E = ErrorCode
B, C = BrokerId(2), BrokerId(3)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Codes = dict[TopicPartition, ErrorCode]


class Fixture:
    def __init__(self) -> None:
        self.image = MetadataImage()
        self.requests = RecordedRequests()
        self.manager = AddPartitionsToTxnManager(lambda: self.image, self.requests)

    def verify(
        self, name: str = "x", *partitions: TopicPartition, add: bool = False, epoch: int = 0
    ) -> Result[Codes]:
        asked = list(partitions or (T0,))
        return self.manager.verify(B, name, 1, epoch, asked, add=add)  # type: ignore[return-value]


def respond(sent: Sent, code: ErrorCode = E.NONE) -> None:
    results = [
        AddPartitionsToTxnResult(
            each.transactional_id,
            [
                AddPartitionsToTxnTopicResult(
                    topic.name,
                    [AddPartitionsToTxnPartitionResult(i, int(code)) for i in topic.partitions],
                )
                for topic in each.topics
            ],
        )
        for each in sent.request.transactions
    ]
    sent.result.complete(AddPartitionsToTxnResponse(results_by_transaction=results))


def run(test: Callable[[Fixture], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Fixture())

    asyncio.run(main())


@pytest.mark.parametrize("add", [False, True])
def test_the_coordinator_verifies_or_adds_the_partitions(add: bool) -> None:
    async def test(it: Fixture) -> None:
        codes = it.verify("x", T0, T1, add=add, epoch=3)
        (sent,) = it.requests.sent
        assert sent.broker == B
        (asked,) = sent.request.transactions
        assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("x", 1, 3)
        assert asked.verify_only is not add
        assert [(each.name, each.partitions) for each in asked.topics] == [("t", [0, 1])]
        respond(sent, E.TRANSACTION_ABORTABLE)
        assert codes.get() == dict.fromkeys((T0, T1), E.TRANSACTION_ABORTABLE)

    run(test)


def test_transactions_that_wait_share_the_next_request() -> None:
    async def test(it: Fixture) -> None:
        results = [it.verify(each) for each in "abc"]
        respond(it.requests.sent[0])
        await steps()
        _, second = it.requests.sent
        assert [each.transactional_id for each in second.request.transactions] == ["b", "c"]
        respond(second)
        assert [each.get() for each in results] == [{T0: E.NONE}] * 3

    run(test)


def test_a_replaced_verification_gets_its_error_before_the_response() -> None:
    async def test(it: Fixture) -> None:
        it.verify("first")
        old, new = it.verify("x"), it.verify("x", epoch=1)
        assert old.get() == {T0: E.INVALID_PRODUCER_EPOCH}
        assert not new.done
        older = it.verify("x")
        assert older.get() == {T0: E.INVALID_PRODUCER_EPOCH}

    run(test)


def test_a_lost_connection_is_a_network_exception() -> None:
    async def test(it: Fixture) -> None:
        codes = it.verify()
        it.requests.sent[0].result.fail(ConnectionResetError())
        assert codes.get() == {T0: E.NETWORK_EXCEPTION}
        it.requests.error = ConnectionClosed()
        await steps()
        assert it.verify().get() == {T0: E.NETWORK_EXCEPTION}

    run(test)


def test_a_coordinator_that_cannot_verify_is_trusted_but_cannot_add() -> None:
    async def test(it: Fixture) -> None:
        it.requests.error = UnsupportedRequest()
        assert it.verify().get() == {T0: E.NONE}
        await steps()
        assert it.verify(add=True).get() == {T0: E.COORDINATOR_NOT_AVAILABLE}

    run(test)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (E.CLUSTER_AUTHORIZATION_FAILED, E.INVALID_TXN_STATE),
        (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_an_error_of_the_whole_request(code: ErrorCode, expected: ErrorCode) -> None:
    async def test(it: Fixture) -> None:
        codes = it.verify()
        it.requests.sent[0].result.complete(AddPartitionsToTxnResponse(error_code=int(code)))
        assert codes.get() == {T0: expected}

    run(test)


def test_a_response_without_a_partition_is_tried_again() -> None:
    async def test(it: Fixture) -> None:
        codes = it.verify()
        it.requests.sent[0].result.complete(AddPartitionsToTxnResponse())
        assert codes.get() == {T0: E.NETWORK_EXCEPTION}

    run(test)


def test_a_cancelled_verification_is_not_sent() -> None:
    async def test(it: Fixture) -> None:
        it.verify("a")
        it.verify("b").cancel()
        respond(it.requests.sent[0])
        await steps()
        assert len(it.requests.sent) == 1

    run(test)


def test_the_leader_of_the_state_partition_is_the_coordinator() -> None:
    async def test(it: Fixture) -> None:
        assert it.manager.coordinator_of("x") is None, "the topic does not exist"
        it.image = image_of(B, name=TRANSACTION_STATE)
        assert it.manager.coordinator_of("x") is None, "the broker is not registered"
        alive = BrokerRegistration(B, "b", 1)
        it.image = replace(it.image, brokers=PersistentMap({B: alive}))
        assert it.manager.coordinator_of("x") == B
        fenced = replace(alive, fenced=True)
        it.image = replace(it.image, brokers=PersistentMap({B: fenced}))
        assert it.manager.coordinator_of("x") is None
        it.image = image_of(BrokerId(-1), name=TRANSACTION_STATE)
        assert it.manager.coordinator_of("x") is None, "nothing leads the partition"

    run(test)
