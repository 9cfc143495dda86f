"""EndTxn, versions 0-5: commit or abort the transaction of a producer.

The broker responds when the decision is durable. It writes the markers afterwards. From version 5
on (transaction.version 2) each EndTxn bumps the producer's epoch, and the response has the producer
id and epoch for the next transaction. With version 5 a producer may abort without having an open
transaction. Before version 2 a fenced producer gets INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.handlers._transactions import code_for
from odradek.coordinator.transaction.transaction_decisions import EPOCH_BUMP_FROM, Identity
from odradek.protocol.messages.end_txn_response import EndTxnResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.coordinator.transaction.transaction_decisions import TransactionResponse
    from odradek.protocol.messages.end_txn_request import EndTxnRequest

FENCED_FROM = 2
EPOCH_BUMP_VERSION = 5


def handle(
    services: Services, context: RequestContext, request: EndTxnRequest
) -> Result[EndTxnResponse]:
    """Return the coordinator's decision in the format of the request's version."""
    version = context.api_version

    def respond(outcome: TransactionResponse) -> EndTxnResponse:
        response = EndTxnResponse(error_code=code_for(outcome.code, version, FENCED_FROM))
        if version >= EPOCH_BUMP_VERSION:
            response.producer_id = outcome.producer_id
            response.producer_epoch = outcome.producer_epoch
        return response

    identity = Identity(request.transactional_id, request.producer_id, request.producer_epoch)
    client_version = EPOCH_BUMP_FROM if version >= EPOCH_BUMP_VERSION else 0
    ended = services.transactions.end_transaction(identity, request.committed, client_version)
    return ended.then(respond)
