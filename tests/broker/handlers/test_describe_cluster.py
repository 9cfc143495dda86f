"""DescribeCluster over the wire: every version, endpoint types, authorized operations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.handlers.describe_cluster import handle
from odradek.broker.requests.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED
from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode
from odradek.ids import BrokerId
from odradek.metadata.image import BrokerRegistration, Endpoint, MetadataImage
from odradek.metadata.persistent import PersistentMap
from odradek.protocol.messages.describe_cluster_request import DescribeClusterRequest
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.testing import Broker
from testkit.wire import WireClient


@pytest.mark.parametrize("version", range(3))
def test_every_version_returns_cluster_controller_and_brokers(
    broker: Broker, client: WireClient, version: int
) -> None:
    response = client.call(DescribeClusterRequest(), version)
    assert (response.error_code, response.controller_id) == (ErrorCode.NONE, 1)
    assert response.cluster_id == client.call(MetadataRequest(), 12).cluster_id
    assert response.cluster_authorized_operations == NOT_REQUESTED
    (node,) = response.brokers
    assert (node.broker_id, f"{node.host}:{node.port}") == (1, broker.bootstrap_servers)
    assert (node.rack, node.is_fenced) == (None, False)


def test_authorized_operations_are_returned_on_request(client: WireClient) -> None:
    response = client.call(DescribeClusterRequest(True), 0)
    assert response.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_other_endpoints_are_not_served(
    client: WireClient, endpoint_type: int, code: ErrorCode
) -> None:
    response = client.call(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert response.error_code == code
    assert response.error_message
    assert response.brokers == []


def test_brokers_have_the_address_of_the_clients_listener() -> None:
    listeners = (Endpoint("INSIDE", "10.0.0.7", 9092), Endpoint("OUTSIDE", "b7.example", 19092))
    registered = [
        BrokerRegistration(BrokerId(number), "", 0, listeners=listeners) for number in (1, 7)
    ]
    image = MetadataImage(
        brokers=PersistentMap({each.id: each for each in registered}), controller_id=BrokerId(7)
    )
    services: Any = SimpleNamespace(config=BrokerConfig({"node.id": "1"}), image=lambda: image)
    session = SimpleNamespace(local_address=("10.0.0.5", 9093), listener_name="OUTSIDE")
    context: Any = SimpleNamespace(session=session)
    response = handle(services, context, DescribeClusterRequest()).value
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [
        (1, "10.0.0.5", 9093),
        (7, "b7.example", 19092),
    ]
    assert response.controller_id == 7, "the controller's id, not the id of this broker"
