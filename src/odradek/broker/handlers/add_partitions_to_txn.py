"""AddPartitionsToTxn, versions 0-5: partitions become part of transactions, or are asked about.

To version 3 a producer asks for its own transaction. Version 4 and later are for brokers: several
transactions at once, and `verify_only` to ask whether partitions have been added (KIP-890);
without it they are added as by a producer of transaction.version 2. A partition that does not
exist refuses its whole transaction, the others are OPERATION_NOT_ATTEMPTED. Before version 2 a
fenced producer is told INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.broker.handlers._transactions import Reply, code_for, reply
from odradek.coordinator.transaction.transaction_decisions import EPOCH_BUMP_FROM, Identity
from odradek.errors import ErrorCode
from odradek.ids import TopicPartition
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from odradek.slicing import Turns, begun

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.coordinator.transaction.transaction_coordinator import Outcome
    from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest

FENCED_FROM = 2
BATCHED_FROM = 4

Codes = Mapping[TopicPartition, ErrorCode]


@begun
async def handle(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Reply[AddPartitionsToTxnResponse]:
    """Every transaction of the request on its own; the answer waits for all of them."""
    version = context.api_version
    turns = Turns()
    if version < BATCHED_FROM:
        only = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        result = await _result(services, version, only, turns)
        return _alone(result) if isinstance(result, AddPartitionsToTxnResult) else _wait(result)
    results = [await _result(services, version, each, turns) for each in request.transactions]
    if any(not isinstance(each, AddPartitionsToTxnResult) for each in results):
        return _gather(results)
    return _batched(results)


async def _result(
    services: Services, version: int, transaction: AddPartitionsToTxnTransaction, turns: Turns
) -> Reply[AddPartitionsToTxnResult]:
    """Gives way while it looks for the partitions, and after that only the coordinator decides."""
    partitions = []
    for topic in transaction.topics:
        partitions += await turns.map(partial(TopicPartition, topic.name), topic.partitions)
    image = services.image()
    found = await turns.map(lambda each: image.partition(*each) is not None, partitions)
    if not all(found):
        codes = {
            each: ErrorCode.OPERATION_NOT_ATTEMPTED
            if exists
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for each, exists in zip(partitions, found, strict=True)
        }
        turns.charge(len(codes))
        return await _told_in_turns(transaction, codes, turns)
    identity = Identity(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    )
    if transaction.verify_only:
        verified = services.transactions.verify(*identity, partitions, add=False)
        assert isinstance(verified, dict), "verifying waits for nothing"
        return _told(transaction, verified)

    def respond(outcome: Outcome) -> AddPartitionsToTxnResult:
        code = code_for(outcome.code, version, FENCED_FROM)
        return _told(transaction, dict.fromkeys(partitions, code))

    client_version = EPOCH_BUMP_FROM if version >= BATCHED_FROM else 0
    answer = services.transactions.add_partitions(identity, frozenset(partitions), client_version)
    return reply(answer, respond)


async def _told_in_turns(
    transaction: AddPartitionsToTxnTransaction, codes: Codes, turns: Turns
) -> AddPartitionsToTxnResult:
    def result(topic: str, partition: int) -> AddPartitionsToTxnPartitionResult:
        code = codes[TopicPartition(topic, partition)]
        return AddPartitionsToTxnPartitionResult(partition, code)

    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                topic.name, await turns.map(partial(result, topic.name), topic.partitions)
            )
            for topic in transaction.topics
        ],
    )


def _told(transaction: AddPartitionsToTxnTransaction, codes: Codes) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition, codes[TopicPartition(topic.name, partition)]
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )


def _alone(result: AddPartitionsToTxnResult) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)


def _batched(results: list[Any]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _wait(result: Any) -> AddPartitionsToTxnResponse:
    return _alone(await result)


async def _gather(results: list[Any]) -> AddPartitionsToTxnResponse:
    return _batched(
        [
            await each if asyncio.isfuture(each) or asyncio.iscoroutine(each) else each
            for each in results
        ]
    )
