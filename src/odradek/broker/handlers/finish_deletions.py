"""FinishDeletions (20002), version 0: report that a broker has removed its logs of deleted topics.

An API of Odradek (`protocol/definitions/README.md`), served on the inter-broker listener only. The
controller forgets a deletion when all brokers with logs of the topic have reported it. A repeated
report changes nothing.

Errors: NOT_CONTROLLER if this broker is not the active controller, STALE_BROKER_EPOCH if the broker
is not registered with this epoch, and the controller's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.protocol.messages.finish_deletions_response import FinishDeletionsResponse
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.finish_deletions_request import FinishDeletionsRequest


def handle(
    services: Services, context: RequestContext, request: FinishDeletionsRequest
) -> Result[FinishDeletionsResponse]:
    cluster = services.cluster
    assert cluster is not None, "a single broker does not serve FinishDeletions"
    if not cluster.membership.is_controller:
        return Result(FinishDeletionsResponse(error_code=ErrorCode.NOT_CONTROLLER))
    return cluster.membership.controller_requests.finish_deletions(request)
