"""Verification of a transaction's first batch in a partition by the coordinator (KIP-890).

Clients of ``transaction.version`` 1 add a partition to the transaction by a request of their own,
and the broker asks the coordinator whether they did. With version 2 (Produce 12, TxnOffsetCommit 5)
the broker asks the coordinator to add the partition. If the producer already has an open
transaction in a partition, the broker asks nothing for it. Verification returns a guard for the
append. With an outdated guard the append cannot open a transaction
(`odradek.log.state.verification`).

In a cluster the coordinator may be another broker (`add_partitions_to_txn_manager`). A single
broker asks its own coordinator by a call.

With version 2, the coordinator responds with CONCURRENT_TRANSACTIONS until the producer's previous
transaction has completed. The broker then retries after ``add.partitions.to.txn.retry.backoff.ms``,
for at most ``add.partitions.to.txn.retry.backoff.max.ms``, because it would cost more to have the
client send the batch again.
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
    """The operation and the errors that a client supports (``TransactionSupportedOperation``).

    The version of its request decides which.
    """

    DEFAULT_ERROR = 0
    GENERIC_ERROR = 1
    ADD_PARTITION = 2


class Transaction(NamedTuple):
    """The transaction that a request names."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


RequestedPartition = tuple["str | Uuid", int]
"""A partition as named in the request: the topic's name or id, and the partition number."""
Verdict = VerificationGuard | KafkaError
Verdicts = dict[RequestedPartition, Verdict]
"""For each partition the guard for its append, or the error that forbids the append."""
_Verification = tuple[Verdicts, dict["TopicPartition", RequestedPartition]]
"""The verdicts so far, and the partitions that the coordinator has to verify."""


def verify(
    services: Services,
    transaction: Transaction,
    sequences: Mapping[RequestedPartition, int],
    operation: Operation,
) -> Result[Verdicts]:
    """Return whether the transaction's batches may be appended.

    The result is executed and done when the coordinator has responded, or immediately if its
    response is not needed.

    Args:
        services: The services of the broker.
        transaction: The transaction of the request.
        sequences: The first sequence number of each batch, -1 for a batch without one.
        operation: The operation that the client supports.
    """
    add = operation is Operation.ADD_PARTITION
    if not add and not services.config.get_bool(ENABLED):
        return Result(dict.fromkeys(sequences, NOT_VERIFIED))
    verdicts, unverified = _start(services, transaction, sequences, add)
    if not unverified:
        return Result(verdicts)
    if services.cluster is None:
        codes = services.transactions.verify(*transaction, list(unverified), add=add)
    else:
        codes = verify_with_coordinator(services, transaction, list(unverified), add=add)
    if codes.completed and not (add and _is_concurrent(codes.value)):
        return Result(_with_errors(verdicts, unverified, codes.value, operation))
    verification = verdicts, unverified
    return run(_wait(services, transaction, sequences, operation, verification, codes))


def verify_with_coordinator(
    services: Services, transaction: Transaction, partitions: list[TopicPartition], *, add: bool
) -> Result[Mapping[TopicPartition, ErrorCode]]:
    """Return the codes of `TransactionCoordinator.verify`, from the broker that is the coordinator.

    For a broker of a cluster. Another broker may be the coordinator (`AddPartitionsToTxnManager`).
    """
    assert services.cluster is not None, "a single broker is the coordinator"
    verifications = services.cluster.transaction_peers.verifications
    coordinator = verifications.coordinator_of(transaction.transactional_id)
    if coordinator is None:
        return Result(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
    if coordinator == services.node_id:
        return services.transactions.verify(*transaction, partitions, add=add)
    return verifications.verify(coordinator, *transaction, partitions, add=add)


def _start(
    services: Services,
    transaction: Transaction,
    sequences: Mapping[RequestedPartition, int],
    add: bool,
) -> _Verification:
    """Start a verification for each partition. Return the guards and the unverified partitions."""
    verdicts: Verdicts = {}
    unverified = {}
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
            unverified[topic_partition] = requested
    return verdicts, unverified


async def _wait(
    services: Services,
    transaction: Transaction,
    sequences: Mapping[RequestedPartition, int],
    operation: Operation,
    verification: _Verification,
    codes: Result[Mapping[TopicPartition, ErrorCode]],
) -> Result[Verdicts]:
    """Wait for the coordinator's response, and retry until the previous transaction has completed.

    Each retry starts the verification of all partitions again, so that a guard is always older than
    the coordinator's response.
    """
    config = services.config
    started_ms = services.clock.monotonic_ms()
    retry_ms_max = config.get_int(RETRY_MS_MAX)
    verdicts, unverified = verification
    while True:
        errors = await wait(codes)
        waited_ms = services.clock.monotonic_ms() - started_ms
        add = operation is Operation.ADD_PARTITION
        if not add or not _is_concurrent(errors) or waited_ms >= retry_ms_max:
            return Result(_with_errors(verdicts, unverified, errors, operation))
        await services.timers.sleep(config.get_int(RETRY_MS) / 1000)
        verdicts, unverified = _start(services, transaction, sequences, True)
        codes = Result({})
        if unverified and services.cluster is None:
            codes = services.transactions.verify(*transaction, list(unverified), add=True)
        elif unverified:
            codes = verify_with_coordinator(services, transaction, list(unverified), add=True)


def _is_concurrent(codes: Mapping[TopicPartition, ErrorCode]) -> bool:
    return ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()


def _with_errors(
    verdicts: Verdicts,
    unverified: Mapping[TopicPartition, RequestedPartition],
    codes: Mapping[TopicPartition, ErrorCode],
    operation: Operation,
) -> Verdicts:
    """Replace the guards of refused partitions by errors that the client supports."""
    for topic_partition, requested in unverified.items():
        code = codes.get(topic_partition, ErrorCode.NONE)
        if code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif code is ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.DEFAULT_ERROR:
            code = ErrorCode.INVALID_TXN_STATE
        if code is not ErrorCode.NONE:
            verdicts[requested] = KafkaError(code)
    return verdicts
