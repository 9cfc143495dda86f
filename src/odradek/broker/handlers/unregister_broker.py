"""UnregisterBroker (64), version 0: forget a broker that will not come back.

The broker leaves all ISRs and leads nothing, and no recorded deletion waits for it. As in Kafka, it
may still run. It is registered again when it starts again (KIP-500).

Deviations from Kafka: a broker that still runs is also registered again with its next session of
ZooKeeper, and when another broker becomes the controller. A single broker cannot be unregistered.
"""

from __future__ import annotations

from odradek.broker.requests.context import RequestContext, Services
from odradek.errors import KafkaError
from odradek.ids import BrokerId
from odradek.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from odradek.protocol.messages.unregister_broker_response import UnregisterBrokerResponse
from odradek.result_tasks import in_task
from odradek.results import Result


@in_task
async def handle(
    services: Services, context: RequestContext, request: UnregisterBrokerRequest
) -> Result[UnregisterBrokerResponse]:
    try:
        await services.controller.unregister_broker(BrokerId(request.broker_id))
    except KafkaError as error:
        return Result(UnregisterBrokerResponse(error_code=error.code, error_message=error.message))
    return Result(UnregisterBrokerResponse())
