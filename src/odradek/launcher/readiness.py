"""Probes of processes that are starting: ports, ZooKeeper, one broker, the whole cluster.

Each probe makes one attempt and returns. `odradek.launcher.child.wait_for` repeats it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from odradek.client.blocking import BlockingClient
from odradek.launcher.plan import HOST
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.describe_cluster_response import DescribeClusterResponse

PROBE_TIMEOUT_S = 5.0
CLIENT_ID = "odradek-launcher"


def is_free(port: int) -> bool:
    """Return whether a server can listen on the port of the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def accepts(port: int) -> bool:
    """Return whether a process accepts connections on the port of the loopback interface."""
    try:
        socket.create_connection((HOST, port), timeout=PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def zookeeper_serves(host: str, port: int, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """Return whether the server responds to ZooKeeper's command ``srvr``."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as peer:
            peer.sendall(b"srvr")
            return peer.recv(9) == b"Zookeeper"
    except OSError:
        return False


def describe_cluster(
    address: tuple[str, int], timeout_s: float = PROBE_TIMEOUT_S
) -> DescribeClusterResponse | None:
    """Return the cluster as a broker knows it. None: the broker does not respond."""
    try:
        with BlockingClient.connect(address, timeout_s, CLIENT_ID) as client:
            return client.call(DescribeClusterRequest(), DescribeClusterResponse, 0)
    except (OSError, TypeError):
        return None


def live_brokers(address: tuple[str, int]) -> set[int]:
    """Return the brokers that are not fenced, as a broker knows them."""
    found = describe_cluster(address)
    return set() if found is None else {each.broker_id for each in found.brokers}


def controller_of(ports: Iterable[int]) -> int | None:
    """Return the controller that the first responding broker knows. None: there is none."""
    for port in ports:
        found = describe_cluster((HOST, port), timeout_s=1.0)
        if found is not None:
            return found.controller_id if found.controller_id >= 0 else None
    return None
