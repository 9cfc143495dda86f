"""BrokerHeartbeat (63), versions 0-1: the state of a broker, and its request to shut down.

Served on the inter-broker listener only. A broker sends it to request a controlled shutdown, and to
report log directories that have failed (version 1). Polls of the metadata feed show that the broker
is alive. KIP-631, KIP-858.

Errors: NOT_CONTROLLER if this broker is not the active controller, and the controller's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.protocol.messages.broker_heartbeat_response import BrokerHeartbeatResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest


def handle(
    services: Services, context: RequestContext, request: BrokerHeartbeatRequest
) -> Result[BrokerHeartbeatResponse]:
    cluster = services.cluster
    assert cluster is not None, "a single broker does not serve BrokerHeartbeat"
    if not cluster.membership.is_controller:
        return Result(BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER))
    return cluster.membership.controller_requests.broker_heartbeat(request)
