"""`odradek cluster drain`: move the leaderships of a broker away, or permit them again."""

from __future__ import annotations

import time

from odradek.cli.client import CONNECT_AGAIN_S, REQUEST_TIMEOUT_S
from odradek.cli.failures import Subject
from odradek.cli.output import CommandError
from odradek.cli.wire import WireClient, check
from odradek.errors import ErrorCode
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import DescribeClusterResponse
from odradek.protocol.messages.drain_broker_request import DrainBrokerRequest
from odradek.protocol.messages.drain_broker_response import DrainBrokerResponse


def drain(bootstrap_server: str, broker_id: int, *, undo: bool) -> list[str]:
    """Drain a broker, or end that. Return the partitions that a drained broker still leads.

    Raises:
        CommandError: The broker is not registered, or no controller responds in time.
    """
    request = DrainBrokerRequest(broker_id, drained=not undo)
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        response = _ask_controller(bootstrap_server, request)
        code = ErrorCode.NOT_CONTROLLER if response is None else response.error_code
        if code != ErrorCode.NOT_CONTROLLER or time.monotonic() >= deadline:
            break
        time.sleep(CONNECT_AGAIN_S)
    if response is None:
        raise CommandError("The cluster has no controller. `odradek cluster status` says why.")
    check(code, Subject("broker", str(broker_id)), response.error_message)
    return [
        f"{topic.topic}-{number}" for topic in response.remaining for number in topic.partitions
    ]


def _ask_controller(
    bootstrap_server: str, request: DrainBrokerRequest
) -> DrainBrokerResponse | None:
    """Return the response of the broker that is the controller, or None if none is known."""
    with WireClient(bootstrap_server) as client:
        cluster = client.call(DescribeClusterRequest(), DescribeClusterResponse, 0)
    for each in cluster.brokers:
        if each.broker_id == cluster.controller_id:
            with WireClient(f"{each.host}:{each.port}") as controller:
                return controller.call(request, DrainBrokerResponse, 0)
    return None
