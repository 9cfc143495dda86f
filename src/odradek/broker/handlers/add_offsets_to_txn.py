"""AddOffsetsToTxn, versions 0-4: add the offsets of a group to a transaction.

The handler adds the group's partition of ``__consumer_offsets``. Producers of transaction.version 2
do not send this request, because TxnOffsetCommit adds the partition. Before version 2 a fenced
producer gets INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.handlers._transactions import code_for
from odradek.coordinator.transaction.transaction_decisions import Identity
from odradek.ids import TopicPartition
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.coordinator.transaction.transaction_decisions import TransactionResponse
    from odradek.protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest

FENCED_FROM = 2


def handle(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> Result[AddOffsetsToTxnResponse]:
    """Add the partition that has the group's offsets."""

    def respond(outcome: TransactionResponse) -> AddOffsetsToTxnResponse:
        code = code_for(outcome.code, context.api_version, FENCED_FROM)
        return AddOffsetsToTxnResponse(error_code=code)

    identity = Identity(request.transactional_id, request.producer_id, request.producer_epoch)
    partition = TopicPartition(CONSUMER_OFFSETS, services.groups.partition_of(request.group_id))
    added = services.transactions.add_partitions(identity, frozenset({partition}), may_wait=True)
    return added.then(respond)
