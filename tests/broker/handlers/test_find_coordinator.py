"""FindCoordinator over the wire: every version, creation of the offsets topic, other types."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.requests.reported_reasons import REASONS_REMEMBERED_MAX, ReportedReasons
from odradek.errors import ErrorCode
from odradek.metadata.topics import CONSUMER_OFFSETS
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.group_calls import find


def offsets_topic(broker: Broker) -> Any:
    async def look(server: Any) -> Any:
        return server.services.image().topics_by_name.get(CONSUMER_OFFSETS)

    return broker.call(look)


@pytest.mark.parametrize("version", range(7))
def test_every_version_returns_the_address_that_the_client_connected_to(
    broker: Broker, client: WireClient, version: int
) -> None:
    response = find(client, version=version)
    if version >= 4:
        assert [each.key for each in response.coordinators] == ["g"]
        response = response.coordinators[0]
    assert response.error_code == 0
    assert f"{response.host}:{response.port}" == broker.bootstrap_servers
    assert response.node_id == 1


def test_first_request_creates_the_offsets_topic(broker: Broker, client: WireClient) -> None:
    assert offsets_topic(broker) is None
    find(client)
    assert len(offsets_topic(broker).partitions) == 50


@pytest.mark.parametrize("config", [{"offsets.topic.num.partitions": 3}])
def test_offsets_topic_has_the_configured_partitions(broker: Broker, client: WireClient) -> None:
    find(client)
    assert len(offsets_topic(broker).partitions) == 3


@pytest.mark.parametrize("config", [{"offsets.topic.replication.factor": 2}])
def test_offsets_topic_that_cannot_be_created_is_reported(
    broker: Broker, client: WireClient
) -> None:
    found = find(client).coordinators[0]
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "INVALID_REPLICATION_FACTOR" in found.error_message
    assert find(client, version=1).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_each_broker_logs_the_reason_of_a_missing_topic_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Several brokers may run in one process."""
    for brokers in (1, 2):
        with (
            Broker(config={"offsets.topic.replication.factor": 2}) as broker,
            WireClient(broker.bootstrap_servers) as client,
        ):
            for _ in range(3):
                find(client)
        lines = [each for each in caplog.messages if each.startswith("cannot create the internal")]
        assert len(lines) == brokers


def test_reasons_are_logged_again_after_many_others() -> None:
    reasons = ReportedReasons()
    assert reasons.is_new("topic", "first")
    assert reasons.is_new("other topic", "first")
    for number in range(REASONS_REMEMBERED_MAX - 2):
        assert reasons.is_new("topic", str(number))
    assert not reasons.is_new("topic", "first")
    assert reasons.is_new("topic", "last")
    assert reasons.is_new("topic", "first")


def test_several_groups_are_returned_in_the_order_of_the_request(client: WireClient) -> None:
    keys = ["b", "a", "", "g" * 1000]
    response = client.call(FindCoordinatorRequest(coordinator_keys=keys), 4)
    assert [(each.key, each.error_code) for each in response.coordinators] == [
        (key, 0) for key in keys
    ]


def test_simultaneous_first_requests_create_the_topic_once(
    broker: Broker, client: WireClient
) -> None:
    with WireClient(broker.bootstrap_servers) as other:
        request = FindCoordinatorRequest(coordinator_keys=["g"])
        client.send(request, 4)
        other.send(request, 4)
        assert client.receive().coordinators[0].error_code == 0
        assert other.receive().coordinators[0].error_code == 0


@pytest.mark.parametrize(
    ("key_type", "code"),
    [
        (2, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_other_types_of_coordinators_are_refused(
    broker: Broker, client: WireClient, version: int, key_type: int, code: ErrorCode
) -> None:
    request = FindCoordinatorRequest(key="x", key_type=key_type)
    if version >= 4:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
    response = client.call(request, version)
    found = response.coordinators[0] if version >= 4 else response
    assert (found.error_code, found.node_id, found.host, found.port) == (code, -1, "", -1)
    assert found.error_message
    assert offsets_topic(broker) is None


@pytest.mark.parametrize("version", [1, 2, 3, 4, 6])
def test_request_for_a_transactional_id_creates_its_topic(
    broker: Broker, client: WireClient, version: int
) -> None:
    request = FindCoordinatorRequest(key="x", key_type=1)
    if version >= 4:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"])
    for _ in range(2):
        response = client.call(request, version)
        found = response.coordinators[-1] if version >= 4 else response
        address = broker.bootstrap_servers
        assert (found.error_code, f"{found.host}:{found.port}") == (0, address)
    assert offsets_topic(broker) is None

    async def state_topic(server: Any) -> Any:
        image = server.services.image()
        return image.topics_by_name["__transaction_state"], image.topic_configs

    topic, configs = broker.call(state_topic)
    assert len(topic.partitions) == 50
    assert configs["__transaction_state"]["cleanup.policy"] == "compact"
    assert configs["__transaction_state"]["compression.type"] == "uncompressed"
    assert configs["__transaction_state"]["min.insync.replicas"] == "1"
