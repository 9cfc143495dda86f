"""AssignReplicasToDirs (73), version 0: report the log directories of a broker's replicas.

Served on the inter-broker listener only. A broker reports replicas in a directory that has failed.
They then lose their leadership, and leave the ISR. KIP-858.

Errors: NOT_CONTROLLER if this broker is not the active controller, and the controller's errors for
the request (STALE_BROKER_EPOCH) and for single partitions.

Deviations from Kafka: a broker reports only replicas that it cannot write, and such replicas again
when it can. Kafka's broker reports each replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.protocol.messages.assign_replicas_to_dirs_response import (
    AssignReplicasToDirsResponse,
)
from odradek.results import Result

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.protocol.messages.assign_replicas_to_dirs_request import (
        AssignReplicasToDirsRequest,
    )


def handle(
    services: Services, context: RequestContext, request: AssignReplicasToDirsRequest
) -> Result[AssignReplicasToDirsResponse]:
    cluster = services.cluster
    assert cluster is not None, "a single broker does not serve AssignReplicasToDirs"
    if not cluster.membership.is_controller:
        return Result(AssignReplicasToDirsResponse(error_code=ErrorCode.NOT_CONTROLLER))
    return cluster.membership.controller_requests.assign_replicas_to_dirs(request)
