"""InitProducerId, versions 0-5: return an id and an epoch for an idempotent producer.

Without a transactional id every request gets a new producer id with epoch 0. An empty transactional
id is INVALID_REQUEST. With a transactional id, the transaction coordinator fences the previous
producer and aborts its open transaction (CONCURRENT_TRANSACTIONS until that is complete). A
producer that sends its id and epoch continues with the next epoch (KIP-360, from version 3 on).
Before version 4 a fenced producer gets INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.handlers._transactions import code_for
from odradek.coordinator.transaction.transaction_decisions import Init, ProducerIdAndEpoch
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse
from odradek.result_tasks import in_task
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.coordinator.transaction.transaction_decisions import TransactionResponse
    from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest

FENCED_FROM = 4


def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> Result[InitProducerIdResponse]:
    """Return a producer id.

    The result is pending if a new block of ids has to be allocated, or if the coordinator has to
    store a decision.
    """
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return Result(_error(ErrorCode.INVALID_REQUEST))
    if request.transactional_id is not None:
        return _transactional(services, context, request, request.transactional_id)
    producer_id = services.producer_ids.next_or_none()
    if producer_id is None:
        return _allocate(services)
    return Result(InitProducerIdResponse(producer_id=producer_id))


def _transactional(
    services: Services,
    context: RequestContext,
    request: InitProducerIdRequest,
    transactional_id: str,
) -> Result[InitProducerIdResponse]:
    expected = None
    if request.producer_id != -1:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)

    def respond(outcome: TransactionResponse) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            error_code=code_for(outcome.code, context.api_version, FENCED_FROM),
            producer_id=outcome.producer_id,
            producer_epoch=outcome.producer_epoch,
        )

    event = Init(transactional_id, request.transaction_timeout_ms, expected)
    return services.transactions.init_producer_id(event).then(respond)


@in_task
async def _allocate(services: Services) -> Result[InitProducerIdResponse]:
    try:
        return Result(InitProducerIdResponse(producer_id=await services.producer_ids.next()))
    except KafkaError as error:
        return Result(_error(error.code))


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)
