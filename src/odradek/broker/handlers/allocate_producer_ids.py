"""AllocateProducerIds (67), version 0: give a block of producer ids to a broker.

Served on the inter-broker listener only. The ids of a block are never given out again, also if the
response is lost. KIP-730.

Errors: NOT_CONTROLLER if this broker is not the active controller, STALE_BROKER_EPOCH if the broker
is not registered, or is registered with another epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.requests.cluster import check_broker_epoch
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId
from odradek.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
from odradek.result_tasks import in_task
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.allocate_producer_ids_request import (
        AllocateProducerIdsRequest,
    )


@in_task
async def handle(
    services: Services, context: RequestContext, request: AllocateProducerIdsRequest
) -> Result[AllocateProducerIdsResponse]:
    cluster = services.cluster
    assert cluster is not None, "a single broker does not serve AllocateProducerIds"
    try:
        cluster.check_controller()
        check_broker_epoch(services.controller.image, request.broker_id, request.broker_epoch)
        broker = BrokerId(request.broker_id)
        block = await services.controller.allocate_producer_ids(broker)
    except KafkaError as error:
        return Result(AllocateProducerIdsResponse(error_code=error.code))
    return Result(AllocateProducerIdsResponse(0, ErrorCode.NONE, block.start, len(block)))
