"""TxnOffsetCommit, versions 0-5: commit offsets as part of a transaction (KIP-98, KIP-447).

Before it stores the offsets, the broker verifies the transaction with its coordinator (KIP-890),
unless the transaction is already open in the group's partition. In version 5 the verification adds
the partition to the transaction. From version 3 on the generation in the request fences members of
an older generation. The offsets are pending until the transaction's marker is written, and fetches
that require stable offsets do not return them. An empty group id is INVALID_GROUP_ID, which is
checked before the verification.

Errors are returned for each partition. Versions 0-1 get COORDINATOR_NOT_AVAILABLE while the group's
shard loads. Versions before 4 get INVALID_TXN_STATE for TRANSACTION_ABORTABLE. If the verification
finds that the producer is fenced, it gets INVALID_PRODUCER_EPOCH. In a cluster, the connection to
the transaction coordinator may end: COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.broker.requests.elements import COMMITS_UNSLICED_MAX
from odradek.broker.transactions.partition_verification import Transaction, verify_with_coordinator
from odradek.errors import ErrorCode, KafkaError
from odradek.log.state.verification import NO_GUARD, NOT_VERIFIED
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.records.batch import NO_SEQUENCE
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.ids import TopicPartition
    from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest

VERIFICATION_ERRORS = {
    # Every version has this code, as for a verified produce.
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    # Older clients do not try again after the first code, and do not find the coordinator again
    # after the second one (`CoordinatorOperationExceptionHelper`).
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Codes of the verification for which a client gets another one, as in Kafka."""

LOADING_FROM = 2
ABORTABLE_FROM = 4
IMPLICIT_ADD_FROM = 5


def handle(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> Result[TxnOffsetCommitResponse]:
    """Verify the transaction, then store the offsets."""
    version = context.api_version
    if not request.group_id:
        return _commit(services, context, request, NO_GUARD)  # the commit refuses the empty id
    partition = services.groups.offsets_partition(services.groups.partition_of(request.group_id))
    try:
        guard = _guard(services, partition, request, adds=version >= IMPLICIT_ADD_FROM)
    except KafkaError:
        # The group coordinator returns the more specific error.
        return _commit(services, context, request, NO_GUARD)
    if guard in (NO_GUARD, NOT_VERIFIED):
        return _commit(services, context, request, guard)
    producer = request.transactional_id, request.producer_id, request.producer_epoch
    adds = version >= IMPLICIT_ADD_FROM
    if services.cluster is None:
        verified = services.transactions.verify(*producer, [partition], add=adds)
    else:
        verified = verify_with_coordinator(services, Transaction(*producer), [partition], add=adds)

    def commit(codes: Mapping[TopicPartition, ErrorCode]) -> Result[TxnOffsetCommitResponse]:
        code = codes[partition]
        if code is not ErrorCode.NONE:
            return Result(_refused(services, request, code, version))
        return _commit(services, context, request, guard)

    return verified.chain(commit)


def _guard(
    services: Services,
    group_partition: TopicPartition,
    request: TxnOffsetCommitRequest,
    *,
    adds: bool,
) -> int:
    """Return the guard for the append. It is NO_GUARD if the partition is in the open transaction.

    A request that adds the partition is verified even if verification is disabled by the config.
    """
    if not adds and not services.config.get_bool("transaction.partition.verification.enable"):
        return NOT_VERIFIED
    _, guard = services.replica_manager.start_verification(
        *group_partition, request.producer_id, request.producer_epoch, NO_SEQUENCE, adds
    )
    return NO_GUARD if guard is None else guard


def _commit(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest, guard: int
) -> Result[TxnOffsetCommitResponse]:
    offsets = services.groups.offsets
    commit = offsets.commit_transactional
    count = sum(len(topic.partitions) for topic in request.topics)
    if context.is_long or count > COMMITS_UNSLICED_MAX:
        commit = offsets.commit_transactional_in_slices
    return commit(request, guard).then(lambda response: _for_version(response, context.api_version))


def _refused(
    services: Services, request: TxnOffsetCommitRequest, code: ErrorCode, version: int
) -> TxnOffsetCommitResponse:
    code = VERIFICATION_ERRORS.get(code, code)
    return _for_version(services.groups.offsets.refuse_transactional(request, code), version)


def _for_version(response: TxnOffsetCommitResponse, version: int) -> TxnOffsetCommitResponse:
    """Return the response with error codes that the version supports."""
    replacements: dict[int, int] = {}
    if version < LOADING_FROM:
        replacements[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if version < ABORTABLE_FROM:
        replacements[ErrorCode.TRANSACTION_ABORTABLE] = ErrorCode.INVALID_TXN_STATE
    if replacements:
        for topic in response.topics:
            for partition in topic.partitions:
                code = partition.error_code
                partition.error_code = replacements.get(code, code)
    return response
