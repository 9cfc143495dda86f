"""Asking the transaction coordinator before a transaction's first batch in a partition (KIP-890).

Clients of ``transaction.version`` 1 have added the partition themselves, and the coordinator is
asked whether they did; with version 2 (Produce 12, TxnOffsetCommit 5) asking adds it. A partition
in which the producer has a transaction open is not asked about. What is given out is a guard for
the append, so that an answer that has become old opens nothing (see `log.verification`).

While the producer's last transaction is being completed version 2 is CONCURRENT_TRANSACTIONS: then
it is asked again after ``add.partitions.to.txn.retry.backoff.ms``, for at most
``add.partitions.to.txn.retry.backoff.max.ms``, as the batch costs more to send again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.log.state.verification import NO_GUARD, NOT_VERIFIED, VerificationGuard
from odradek.result_tasks import run, wait
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import Services
    from odradek.ids import TopicPartition, Uuid

ENABLED = "transaction.partition.verification.enable"
RETRY_MS = "add.partitions.to.txn.retry.backoff.ms"
RETRY_MS_MAX = "add.partitions.to.txn.retry.backoff.max.ms"


class Operation(IntEnum):
    """What the version of a client's request lets it do and understand
    (``TransactionSupportedOperation``).
    """

    DEFAULT_ERROR = 0
    GENERIC_ERROR = 1
    ADD_PARTITION = 2


class Transaction(NamedTuple):
    """The transaction that a request says it is part of."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


RequestedPartition = tuple["str | Uuid", int]
"""A partition as the request names it: the topic's name or id, and the number."""
Verdict = VerificationGuard | KafkaError
Verdicts = dict[RequestedPartition, Verdict]
"""For each partition the guard to append with, or why nothing may be appended."""
_Questions = tuple[Verdicts, dict["TopicPartition", RequestedPartition]]


def verify(
    services: Services,
    transaction: Transaction,
    sequences: Mapping[RequestedPartition, int],
    operation: Operation,
) -> Result[Verdicts]:
    """Return whether the transaction's batches may be appended.

    The result is executed and done when the coordinator has responded, at once if it need not be
    asked.

    Args:
        sequences: The first sequence of each batch; -1 without one.
    """
    add = operation is Operation.ADD_PARTITION
    if not add and not services.config.get_bool(ENABLED):
        return Result(dict.fromkeys(sequences, NOT_VERIFIED))
    verdicts, asked = _start(services, transaction, sequences, add)
    if not asked:
        return Result(verdicts)
    codes = services.transactions.verify(*transaction, list(asked), add=add)
    if codes.completed and not (add and _is_concurrent(codes.value)):
        return Result(_taken(verdicts, asked, codes.value, operation))
    return run(_wait(services, transaction, sequences, (verdicts, asked), codes))


def _start(
    services: Services,
    transaction: Transaction,
    sequences: Mapping[RequestedPartition, int],
    add: bool,
) -> _Questions:
    """Guards for all partitions, and those that the coordinator must be asked about."""
    verdicts: Verdicts = {}
    asked = {}
    for requested, sequence in sequences.items():
        try:
            topic_partition, guard = services.replica_manager.start_verification(
                *requested, transaction.producer_id, transaction.producer_epoch, sequence, add
            )
        except KafkaError as error:
            verdicts[requested] = error
            continue
        verdicts[requested] = NO_GUARD if guard is None else guard
        if guard is not None:
            asked[topic_partition] = requested
    return verdicts, asked


async def _wait(
    services: Services,
    transaction: Transaction,
    sequences: Mapping[RequestedPartition, int],
    questions: _Questions,
    codes: Result[Mapping[TopicPartition, ErrorCode]],
) -> Result[Verdicts]:
    """Wait for the coordinator's write, and for the last transaction to be completed: then ask
    again for everything. Guards are always older than the response.
    """
    config = services.config
    started_ms = services.clock.monotonic_ms()
    patience_ms = config.get_int(RETRY_MS_MAX)
    verdicts, asked = questions
    while True:
        answer = await wait(codes)
        if not _is_concurrent(answer) or services.clock.monotonic_ms() - started_ms >= patience_ms:
            return Result(_taken(verdicts, asked, answer, Operation.ADD_PARTITION))
        await services.timers.sleep(config.get_int(RETRY_MS) / 1000)
        verdicts, asked = _start(services, transaction, sequences, True)
        codes = Result({})
        if asked:
            codes = services.transactions.verify(*transaction, list(asked), add=True)


def _is_concurrent(codes: Mapping[TopicPartition, ErrorCode]) -> bool:
    return ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()


def _taken(
    verdicts: Verdicts,
    asked: Mapping[TopicPartition, RequestedPartition],
    codes: Mapping[TopicPartition, ErrorCode],
    operation: Operation,
) -> Verdicts:
    """`verdicts` with the coordinator's refusals, in the codes that the client understands."""
    for topic_partition, requested in asked.items():
        code = codes.get(topic_partition, ErrorCode.NONE)
        if code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif code is ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.DEFAULT_ERROR:
            code = ErrorCode.INVALID_TXN_STATE
        if code is not ErrorCode.NONE:
            verdicts[requested] = KafkaError(code)
    return verdicts
