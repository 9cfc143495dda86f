"""AddOffsetsToTxn, versions 0-4: the offsets of a group become part of a transaction.

It is the group's partition of ``__consumer_offsets`` that is added. Producers of
transaction.version 2 do without this request: TxnOffsetCommit adds it. Before version 2 a fenced
producer is told INVALID_PRODUCER_EPOCH.
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
    """Adds the partition that holds the group's offsets."""

    def respond(outcome: TransactionResponse) -> AddOffsetsToTxnResponse:
        code = code_for(outcome.code, context.api_version, FENCED_FROM)
        return AddOffsetsToTxnResponse(error_code=code)

    identity = Identity(request.transactional_id, request.producer_id, request.producer_epoch)
    partition = TopicPartition(CONSUMER_OFFSETS, services.groups.partition_of(request.group_id))
    return services.transactions.add_partitions(identity, frozenset({partition})).then(respond)
