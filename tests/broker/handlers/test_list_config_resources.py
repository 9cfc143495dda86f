"""ListConfigResources over the wire: the resources with configs, by type."""

from __future__ import annotations

import pytest

from odradek.errors import ErrorCode
from odradek.metadata.config_changes import OpType
from odradek.metadata.resources import ResourceType
from odradek.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.test_incremental_alter_configs import alter

TOPIC, BROKER, LOGGER = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER
METRICS, GROUP = ResourceType.CLIENT_METRICS, ResourceType.GROUP
EVERYTHING = {("t", TOPIC), ("1", BROKER), ("1", LOGGER), ("m", METRICS), ("g/h", GROUP)}


@pytest.fixture
def resources(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    alter(client, METRICS, "m", ("interval.ms", OpType.SET, "60000"))
    alter(client, GROUP, "g/h", ("consumer.session.timeout.ms", OpType.SET, "50000"))


def listed(client: WireClient, version: int, *types: int) -> tuple[int, set[tuple[str, int]]]:
    response = client.call(ListConfigResourcesRequest(list(types)), version)
    found = [(each.resource_name, each.resource_type) for each in response.config_resources]
    assert len(set(found)) == len(found)
    return response.error_code, set(found)


@pytest.mark.usefixtures("resources")
@pytest.mark.parametrize("types", [(), (METRICS,), (TOPIC, GROUP), (TOPIC, TOPIC), (BROKER,)])
def test_the_requested_types_or_all_types_are_listed(
    client: WireClient, types: tuple[int, ...]
) -> None:
    expected = {each for each in EVERYTHING if not types or each[1] in types}
    assert listed(client, 1, *types) == (ErrorCode.NONE, expected)


@pytest.mark.usefixtures("resources")
def test_version_0_lists_client_metrics(client: WireClient) -> None:
    assert listed(client, 0) == (ErrorCode.NONE, {("m", METRICS)})


@pytest.mark.parametrize("unknown", [0, 1, 99, -1])
def test_an_unknown_type_is_an_unsupported_version(client: WireClient, unknown: int) -> None:
    assert listed(client, 1, TOPIC, unknown) == (ErrorCode.UNSUPPORTED_VERSION, set())


@pytest.mark.usefixtures("resources")
def test_a_group_without_configs_is_not_listed(client: WireClient) -> None:
    alter(client, GROUP, "g/h", ("consumer.session.timeout.ms", OpType.DELETE, None))
    assert listed(client, 1, GROUP) == (ErrorCode.NONE, set())
