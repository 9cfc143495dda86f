"""InitProducerId, versions 0-5: a producer id for an idempotent producer.

Without a transactional id every request gets a fresh producer id with epoch 0; an empty one is
INVALID_REQUEST. There is no transaction coordinator yet: a transactional id is answered with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as FindCoordinator does: the one error on which every client
gives up at once (docs/deviations.md).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from odradek.broker.context import RequestContext, Services
    from odradek.protocol.messages.init_producer_id_request import InitProducerIdRequest


def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Coroutine[Any, Any, InitProducerIdResponse]:
    """A fresh producer id; at once while the block lasts."""
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _error(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _error(refused if request.transactional_id else ErrorCode.INVALID_REQUEST)
    producer_id = services.producer_ids.next_or_none()
    if producer_id is None:
        return _allocate(services)
    return InitProducerIdResponse(producer_id=producer_id)


async def _allocate(services: Services) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await services.producer_ids.next())
    except KafkaError as error:
        return _error(error.code)


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)
