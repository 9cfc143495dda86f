"""AddPartitionsToTxn, versions 0-5: add partitions to transactions, or verify that they were added.

Up to version 3 a producer sends the request for its own transaction. Version 4 and later are for
brokers. They take several transactions, and with `verify_only` they ask whether partitions have
been added (KIP-890). Without `verify_only` the partitions are added as by a producer of
transaction.version 2.

If a partition does not exist, no partition of its transaction is added, and the existing ones have
OPERATION_NOT_ATTEMPTED. Before version 2 a fenced producer gets INVALID_PRODUCER_EPOCH. Up to
version 3 a request is held for a moment while the last transaction is being completed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.broker.handlers._transactions import code_for
from odradek.broker.requests.elements import each, each_partition
from odradek.coordinator.transaction.transaction_decisions import EPOCH_BUMP_FROM, Identity
from odradek.errors import ErrorCode
from odradek.ids import TopicPartition
from odradek.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from odradek.results import Result, gather

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.coordinator.transaction.transaction_decisions import TransactionResponse
    from odradek.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest

FENCED_FROM = 2
BATCHED_FROM = 4

Codes = Mapping[TopicPartition, ErrorCode]


def handle(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Result[AddPartitionsToTxnResponse]:
    """Add the partitions to each transaction. The response waits for all of them."""
    version = context.api_version
    if version < BATCHED_FROM:
        only = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return _added(services, version, only).then(
            lambda result: AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=result.topic_results
            )
        )
    added = each(lambda each: _added(services, version, each), request.transactions)
    return added.chain(gather).then(
        lambda results: AddPartitionsToTxnResponse(results_by_transaction=results)
    )


def _added(
    services: Services, version: int, transaction: AddPartitionsToTxnTransaction
) -> Result[AddPartitionsToTxnResult]:
    image = services.image()
    partitions: list[TopicPartition] = []
    missing: set[TopicPartition] = set()

    def collect(topic: AddPartitionsToTxnTopic, index: int) -> None:
        partition = TopicPartition(topic.name, index)
        partitions.append(partition)
        if image.partition(*partition) is None:
            missing.add(partition)

    collected = each_partition(
        transaction.topics, lambda topic: topic.partitions, collect, lambda topic, _: None
    )

    def decide(_: object) -> Result[AddPartitionsToTxnResult]:
        if missing:
            return _refused(transaction, missing)
        return _decided(services, version, transaction, partitions)

    return collected.chain(decide)


def _decided(
    services: Services,
    version: int,
    transaction: AddPartitionsToTxnTransaction,
    partitions: list[TopicPartition],
) -> Result[AddPartitionsToTxnResult]:
    """Have the transaction coordinator add or verify the partitions."""
    identity = Identity(
        transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    )
    if transaction.verify_only:
        verified = services.transactions.verify(*identity, partitions, add=False)
        return verified.chain(lambda codes: _response(transaction, codes.__getitem__))

    def respond(outcome: TransactionResponse) -> Result[AddPartitionsToTxnResult]:
        code = code_for(outcome.code, version, FENCED_FROM)
        return _response(transaction, lambda _: code)

    # A request of another broker has several transactions, which must not wait for each other.
    is_batched = version >= BATCHED_FROM
    outcome = services.transactions.add_partitions(
        identity,
        frozenset(partitions),
        EPOCH_BUMP_FROM if is_batched else 0,
        may_wait=not is_batched,
    )
    return outcome.chain(respond, executed=True)


def _refused(
    transaction: AddPartitionsToTxnTransaction, missing: set[TopicPartition]
) -> Result[AddPartitionsToTxnResult]:
    """Return the errors of a transaction of which some partitions do not exist."""

    def code_of(partition: TopicPartition) -> ErrorCode:
        exists = partition not in missing
        return ErrorCode.OPERATION_NOT_ATTEMPTED if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return _response(transaction, code_of)


def _response(
    transaction: AddPartitionsToTxnTransaction, code_of: Callable[[TopicPartition], ErrorCode]
) -> Result[AddPartitionsToTxnResult]:
    topics = each_partition(
        transaction.topics,
        lambda topic: topic.partitions,
        lambda topic, index: AddPartitionsToTxnPartitionResult(
            index, code_of(TopicPartition(topic.name, index))
        ),
        lambda topic, results: AddPartitionsToTxnTopicResult(topic.name, results),
    )
    return topics.then(
        lambda topics: AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id, topic_results=topics
        )
    )
