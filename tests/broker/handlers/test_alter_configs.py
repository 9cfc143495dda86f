"""AlterConfigs over the wire: every version replaces or refuses the overrides of a resource."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.resources import ResourceType
from odradek.protocol.messages.alter_configs_request import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from odradek.testing import Broker
from testkit.wire import WireClient


def resource(kind: int, name: str, **configs: str | None) -> AlterConfigsResource:
    values = [AlterableConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return AlterConfigsResource(kind, name, values)


def overrides(broker: Broker, topic: str) -> dict[str, str]:
    async def read(server: Any) -> dict[str, str]:
        return dict(server.services.image().topic_configs.get(topic, {}))

    return broker.call(read)


@pytest.mark.parametrize("version", range(3))
def test_every_version_replaces_all_overrides(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t", 1, {"retention.ms": "5", "segment.ms": "6"})
    request = AlterConfigsRequest([resource(ResourceType.TOPIC, "t", segment_ms="7")])
    (response,) = client.call(request, version).responses
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert (response.resource_type, response.resource_name) == (ResourceType.TOPIC, "t")
    assert overrides(broker, "t") == {"segment.ms": "7"}


def test_validate_only_changes_nothing(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t", 1, {"retention.ms": "5"})
    request = AlterConfigsRequest(
        [resource(ResourceType.TOPIC, "t", segment_ms="7")], validate_only=True
    )
    assert client.call(request, 2).responses[0].error_code == ErrorCode.NONE
    assert overrides(broker, "t") == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("alteration", "code"),
    [
        (resource(ResourceType.TOPIC, "nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource(ResourceType.TOPIC, "t", retention_ms="x"), ErrorCode.INVALID_CONFIG),
        (resource(ResourceType.TOPIC, "t", what="x"), ErrorCode.INVALID_CONFIG),
        (resource(ResourceType.TOPIC, "t", retention_ms=None), ErrorCode.INVALID_REQUEST),
        (resource(ResourceType.BROKER, "1", num_partitions="2"), ErrorCode.INVALID_REQUEST),
        (resource(ResourceType.BROKER, "1", what="2"), ErrorCode.INVALID_CONFIG),
        (resource(ResourceType.BROKER_LOGGER, "1", root="INFO"), ErrorCode.INVALID_REQUEST),
        (resource(ResourceType.GROUP, "g", what="1"), ErrorCode.INVALID_CONFIG),
        (resource(77, "g"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_alterations_change_nothing(
    broker: Broker, client: WireClient, alteration: AlterConfigsResource, code: ErrorCode
) -> None:
    broker.create_topic("t", 1, {"retention.ms": "5"})
    (response,) = client.call(AlterConfigsRequest([alteration]), 2).responses
    assert response.error_code == code
    assert response.error_message
    assert overrides(broker, "t") == {"retention.ms": "5"}


def test_repeated_resources_and_configs_are_refused(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    broker.create_topic("u")
    twice = resource(ResourceType.TOPIC, "t", segment_ms="7")
    doubled = AlterConfigsResource(
        ResourceType.TOPIC, "u", [AlterableConfig("segment.ms", "1")] * 2
    )
    responses = client.call(AlterConfigsRequest([twice, twice, doubled]), 2).responses
    assert [response.error_code for response in responses] == [ErrorCode.INVALID_REQUEST] * 3
    assert overrides(broker, "t") == overrides(broker, "u") == {}


def test_a_controller_that_has_stopped_returns_its_error(
    broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single broker has no other controller."""

    async def refuse(*_: Any, **__: Any) -> Any:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "The controller has stopped.")

    async def close(server: Any) -> None:
        monkeypatch.setattr(server.services.controller, "alter_configs", refuse)

    broker.create_topic("t")
    broker.call(close)
    request = AlterConfigsRequest([resource(ResourceType.TOPIC, "t", segment_ms="7")])
    (response,) = client.call(request, 2).responses
    assert response.error_code == ErrorCode.NOT_CONTROLLER
