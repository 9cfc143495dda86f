"""TxnOffsetCommit, versions 0-5: commits offsets as a part of a transaction (KIP-98, KIP-447).

Before anything is stored, the transaction is verified with its coordinator (KIP-890), unless the
group's partition has it open already; version 5 adds the partition to the transaction by that. From
version 3 on a sender that names its group's generation is fenced by it. What is committed is
pending, and held back from fetches that require stable offsets, until the marker arrives. An empty
group id is INVALID_GROUP_ID before anybody is asked about the transaction.

Errors stand at each partition. Versions 0-1 are told COORDINATOR_NOT_AVAILABLE while the group's
shard loads, and versions before 4 INVALID_TXN_STATE for TRANSACTION_ABORTABLE. A
producer that the verification finds fenced is told INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode, KafkaError
from odradek.log.state.verification import NO_GUARD, NOT_VERIFIED
from odradek.protocol.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from odradek.records.batch import NO_SEQUENCE
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.ids import TopicPartition
    from odradek.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest

LOADING_FROM = 2
ABORTABLE_FROM = 4
IMPLICIT_ADD_FROM = 5


def handle(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> Result[TxnOffsetCommitResponse]:
    """Verify the transaction, then store the offsets."""
    version = context.api_version
    if not request.group_id:
        return _commit(services, request, NO_GUARD, version)  # which refuses it
    partition = services.groups.offsets_partition(services.groups.partition_of(request.group_id))
    try:
        guard = _guard(services, partition, request, adds=version >= IMPLICIT_ADD_FROM)
    except KafkaError:
        # The group's coordinator says better why.
        return _commit(services, request, NO_GUARD, version)
    if guard in (NO_GUARD, NOT_VERIFIED):
        return _commit(services, request, guard, version)
    verified = services.transactions.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        add=version >= IMPLICIT_ADD_FROM,
    )

    def commit(codes: Mapping[TopicPartition, ErrorCode]) -> Result[TxnOffsetCommitResponse]:
        code = codes[partition]
        if code is not ErrorCode.NONE:
            return Result(_refused(services, request, code, version))
        return _commit(services, request, guard, version)

    return verified.chain(commit)


def _guard(
    services: Services,
    group_partition: TopicPartition,
    request: TxnOffsetCommitRequest,
    *,
    adds: bool,
) -> int:
    """What the append needs: NO_GUARD when the transaction is open in the partition already. A
    request that adds the partition has to ask, whether or not others are verified."""
    if not adds and not services.config.get_bool("transaction.partition.verification.enable"):
        return NOT_VERIFIED
    _, guard = services.replica_manager.start_verification(
        *group_partition, request.producer_id, request.producer_epoch, NO_SEQUENCE, adds
    )
    return NO_GUARD if guard is None else guard


def _commit(
    services: Services, request: TxnOffsetCommitRequest, guard: int, version: int
) -> Result[TxnOffsetCommitResponse]:
    answer = services.groups.offsets.commit_transactional(request, guard)
    return answer.then(lambda response: _for_version(response, version))


def _refused(
    services: Services, request: TxnOffsetCommitRequest, code: ErrorCode, version: int
) -> TxnOffsetCommitResponse:
    if code is ErrorCode.PRODUCER_FENCED:  # as to a produce that is verified, in every version
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return _for_version(services.groups.offsets.refuse_transactional(request, code), version)


def _for_version(answer: TxnOffsetCommitResponse, version: int) -> TxnOffsetCommitResponse:
    """The answer in codes that clients of this version know."""
    instead = {}
    if version < LOADING_FROM:
        instead[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    if version < ABORTABLE_FROM:
        instead[ErrorCode.TRANSACTION_ABORTABLE] = ErrorCode.INVALID_TXN_STATE
    for topic in answer.topics:
        for partition in topic.partitions:
            code = ErrorCode(partition.error_code)
            partition.error_code = instead.get(code, code)
    return answer
