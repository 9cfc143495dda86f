"""DrainBroker (20003), version 0: move the leaderships of a broker away, or permit them again.

An API of Odradek (`protocol/definitions/README.md`), served on the inter-broker listener only.
`odradek cluster drain` sends it to the controller. A drained broker stays in the ISRs, and leads a
partition only if no other in-sync replica can. It stays drained after a restart. The response comes
when the new leaders have applied the change, and lists the partitions that the broker still leads.

Errors: NOT_CONTROLLER if this broker is not the active controller, BROKER_ID_NOT_REGISTERED, and
the controller's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.protocol.messages.drain_broker_response import DrainBrokerResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.drain_broker_request import DrainBrokerRequest


def handle(
    services: Services, context: RequestContext, request: DrainBrokerRequest
) -> Result[DrainBrokerResponse]:
    cluster = services.cluster
    assert cluster is not None, "a single broker does not serve DrainBroker"
    if not cluster.membership.is_controller:
        return Result(DrainBrokerResponse(error_code=ErrorCode.NOT_CONTROLLER))
    return cluster.membership.controller_requests.drain_broker(request)
