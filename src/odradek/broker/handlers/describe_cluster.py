"""DescribeCluster (60), versions 0-2: return the cluster's id, its controller and its brokers.

From version 1 on, endpoint type 2 (controllers) is MISMATCHED_ENDPOINT_TYPE, because no listener of
this broker is a controller listener. Other types than 1 (brokers) and 2 are
UNSUPPORTED_ENDPOINT_TYPE. Fenced brokers are returned on request only (version 2, KIP-1073).

Deviations from Kafka: addresses as in `odradek.broker.requests.advertised`, and a tagged field of
Odradek for brokers that are drained. KIP-700, KIP-919.
"""

from __future__ import annotations

from odradek.broker.requests.advertised import broker_address
from odradek.broker.requests.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED
from odradek.broker.requests.context import RequestContext, Services
from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from odradek.results import Result

BROKERS, CONTROLLERS = 1, 2


def handle(
    services: Services, context: RequestContext, request: DescribeClusterRequest
) -> Result[DescribeClusterResponse]:
    if request.endpoint_type != BROKERS:
        return Result(_wrong_endpoint(request.endpoint_type))
    image = services.image()
    requested = request.include_cluster_authorized_operations
    return Result(
        DescribeClusterResponse(
            endpoint_type=BROKERS,
            cluster_id=image.cluster_id,
            controller_id=image.controller_id,
            brokers=_brokers(services, context, include_fenced=request.include_fenced_brokers),
            cluster_authorized_operations=CLUSTER_OPERATIONS if requested else NOT_REQUESTED,
        )
    )


def _brokers(
    services: Services, context: RequestContext, *, include_fenced: bool
) -> list[DescribeClusterBroker]:
    """Return the brokers that have the client's listener."""
    brokers = []
    for broker in services.image().brokers.values():
        if broker.fenced and not include_fenced:
            continue
        address = broker_address(services.config, context.session, broker)
        if address is not None:
            found = DescribeClusterBroker(broker.id, *address, broker.rack, broker.fenced)
            found.drained = broker.drained
            brokers.append(found)
    return brokers


def _wrong_endpoint(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=f"Unsupported endpoint type {endpoint_type}",
    )
