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
from typing import TYPE_CHECKING, Any

from odradek.broker.handlers._transactions import Reply, code_for, reply
from odradek.coordinator.transaction.state import EPOCH_BUMP_FROM, Identity
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

if TYPE_CHECKING:
    from odradek.broker.context import RequestContext, Services
    from odradek.coordinator.transaction.coordinator import Outcome
    from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest

FENCED_FROM = 2
BATCHED_FROM = 4

Codes = Mapping[TopicPartition, ErrorCode]


def handle(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Reply[AddPartitionsToTxnResponse]:
    """Every transaction of the request on its own; the answer waits for all of them."""
    version = context.api_version
    if version < BATCHED_FROM:
        only = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        result = _result(services, version, only)
        return _alone(result) if isinstance(result, AddPartitionsToTxnResult) else _wait(result)
    results = [_result(services, version, each) for each in request.transactions]
    if any(not isinstance(each, AddPartitionsToTxnResult) for each in results):
        return _gather(results)
    return _batched(results)


def _result(
    services: Services, version: int, transaction: AddPartitionsToTxnTransaction
) -> Reply[AddPartitionsToTxnResult]:
    partitions = [
        TopicPartition(topic.name, partition)
        for topic in transaction.topics
        for partition in topic.partitions
    ]
    image = services.image()
    missing = {each for each in partitions if image.partition(*each) is None}
    if missing:
        codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        codes |= dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _told(transaction, codes)
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
