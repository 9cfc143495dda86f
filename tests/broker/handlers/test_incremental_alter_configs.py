"""IncrementalAlterConfigs over the wire: every version, every operation, immediate effect."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from odradek.config.broker import ConfigSource
from odradek.errors import ErrorCode
from odradek.metadata.config_changes import OpType
from odradek.metadata.resources import ResourceType
from odradek.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.testing import Broker
from testkit.requests import batch, produce
from testkit.wire import ConnectionClosed, WireClient

SET, DELETE, APPEND, SUBTRACT = OpType


def alter(
    client: WireClient,
    kind: int,
    name: str,
    *ops: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    resource = AlterConfigsResource(kind, name, [AlterableConfig(*op) for op in ops])
    request = IncrementalAlterConfigsRequest([resource], validate_only)
    (response,) = client.call(request, version).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response


def overrides(broker: Broker, topic: str) -> dict[str, str]:
    async def read(server: Any) -> dict[str, str]:
        return dict(server.services.image().topic_configs.get(topic, {}))

    return broker.call(read)


def produced(client: WireClient, size: int) -> int:
    (sent,) = client.call(produce("t", batch(bytes(size))), 8).responses
    return int(sent.partition_responses[0].error_code)


@pytest.mark.parametrize("version", range(2))
def test_every_version_sets_deletes_appends_and_subtracts(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t", 1, {"retention.ms": "5"})
    response = alter(
        client,
        ResourceType.TOPIC,
        "t",
        ("segment.ms", SET, "7"),
        ("retention.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
        version=version,
    )
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert overrides(broker, "t") == {"segment.ms": "7", "cleanup.policy": "delete,compact"}
    alter(client, ResourceType.TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"), version=version)
    assert overrides(broker, "t") == {"segment.ms": "7", "cleanup.policy": "compact"}


def test_topic_config_is_in_force_for_the_next_produce(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    assert produced(client, 1000) == ErrorCode.NONE
    alter(client, ResourceType.TOPIC, "t", ("max.message.bytes", SET, "500"))
    assert produced(client, 1000) == ErrorCode.MESSAGE_TOO_LARGE
    alter(client, ResourceType.TOPIC, "t", ("max.message.bytes", DELETE, None))
    assert produced(client, 1000) == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "1"])
def test_broker_config_is_in_force_for_the_next_produce(
    broker: Broker, client: WireClient, name: str
) -> None:
    broker.create_topic("t")
    alter(client, ResourceType.BROKER, name, ("message.max.bytes", SET, "500"))
    assert produced(client, 1000) == ErrorCode.MESSAGE_TOO_LARGE
    alter(client, ResourceType.BROKER, name, ("message.max.bytes", DELETE, None))
    assert produced(client, 1000) == ErrorCode.NONE


def test_connection_limit_is_in_force_for_the_next_connection(
    broker: Broker, client: WireClient
) -> None:
    kind = ResourceType.BROKER
    assert not alter(client, kind, "1", ("max.connections.per.ip", SET, "1")).error_code
    with WireClient(broker.bootstrap_servers) as refused, pytest.raises(ConnectionClosed):
        refused.call(MetadataRequest(), 12)
    wrong = alter(client, kind, "1", ("max.connections.per.ip.overrides", SET, "x"))
    assert wrong.error_code == ErrorCode.INVALID_REQUEST
    assert not alter(client, kind, "1", ("max.connections.per.ip", DELETE, None)).error_code
    with WireClient(broker.bootstrap_servers) as welcome:
        assert welcome.call(MetadataRequest(), 12).brokers


@pytest.mark.parametrize("name", ["1", ""])
def test_thread_counts_change_at_most_by_a_factor_of_two(
    broker: Broker, client: WireClient, name: str
) -> None:
    def threads(value: str | None) -> str | None:
        op = DELETE if value is None else SET
        response = alter(client, ResourceType.BROKER, name, ("log.cleaner.threads", op, value))
        assert response.error_code in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
        assert bool(response.error_code) is bool(response.error_message)
        return response.error_message

    assert threads("3") == (
        "Log cleaner threads cannot be increased to more than double the current value 1"
    )
    assert [threads(value) for value in ("2", "4")] == [None, None]
    refused = "Log cleaner threads cannot be reduced to less than half the current value 4"
    assert [threads("1"), threads(None)] == [refused, refused]
    assert [threads(value) for value in ("2", "1", None)] == [None, None, None]


POOLS = [
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
]


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("node", ["1", ""])
def test_sizes_of_thread_pools_without_effect_are_stored_and_returned(
    broker: Broker, client: WireClient, node: str, name: str
) -> None:
    def shown() -> tuple[str | None, int, bool]:
        resource = DescribeConfigsResource(ResourceType.BROKER, "1", [name])
        (result,) = client.call(DescribeConfigsRequest([resource]), 4).results
        (config,) = result.configs
        return config.value, config.config_source, config.read_only

    default = shown()
    assert default[1:] == (ConfigSource.DEFAULT_CONFIG, False)
    assert not alter(client, ResourceType.BROKER, node, (name, SET, "4")).error_code
    level = "DYNAMIC_BROKER_CONFIG" if node else "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert shown() == ("4", ConfigSource[level], False)
    wrong = alter(client, ResourceType.BROKER, node, (name, SET, "many"))
    assert (wrong.error_code, wrong.error_message) == (
        ErrorCode.INVALID_REQUEST,
        f"Invalid value many for configuration {name}: Not a number of type INT",
    )
    assert not alter(client, ResourceType.BROKER, node, (name, DELETE, None)).error_code
    assert shown() == default


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("max.connection.creation.rate", "only the byte rates of clients are enforced as quotas"),
        ("remote.log.reader.threads", "there is no tiered storage"),
        ("ssl.keystore.location", "only PLAINTEXT listeners are served"),
    ],
)
def test_configs_without_support_are_refused_with_the_reason(
    client: WireClient, name: str, reason: str
) -> None:
    response = alter(client, ResourceType.BROKER, "1", (name, SET, "4"))
    assert (response.error_code, response.error_message) == (
        ErrorCode.INVALID_CONFIG,
        f"Broker config {name} cannot be altered: it does not apply here, {reason}",
    )


def test_validate_only_changes_nothing(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    response = alter(client, ResourceType.TOPIC, "t", ("segment.ms", SET, "7"), validate_only=True)
    assert response.error_code == ErrorCode.NONE
    assert overrides(broker, "t") == {}


@pytest.mark.parametrize(
    ("kind", "name", "op", "code"),
    [
        (
            ResourceType.TOPIC,
            "nope",
            ("segment.ms", SET, "7"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (ResourceType.TOPIC, "t", ("segment.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (ResourceType.TOPIC, "t", ("nope", SET, "x"), ErrorCode.INVALID_CONFIG),
        (ResourceType.TOPIC, "t", ("segment.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (ResourceType.TOPIC, "t", ("segment.ms", APPEND, "7"), ErrorCode.INVALID_CONFIG),
        (ResourceType.TOPIC, "t", ("segment.ms", 4, "7"), ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "1", ("num.partitions", SET, "7"), ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "2", ("message.max.bytes", SET, "7"), ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "1", ("message.max.bytes", SET, "x"), ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "1", ("nope", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (ResourceType.BROKER_LOGGER, "1", ("root", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (ResourceType.BROKER_LOGGER, "1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "1", ("root", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (ResourceType.CLIENT_METRICS, "m", ("interval.ms", SET, "7"), ErrorCode.INVALID_REQUEST),
        (1, "m", ("a", SET, "7"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused_says_why(
    broker: Broker,
    client: WireClient,
    kind: int,
    name: str,
    op: tuple[str, int, str | None],
    code: ErrorCode,
) -> None:
    broker.create_topic("t")
    response = alter(client, kind, name, op)
    assert response.error_code == code
    assert response.error_message
    assert overrides(broker, "t") == {}


def test_one_invalid_config_refuses_the_whole_resource(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    good, wrong = ("segment.ms", SET, "7"), ("retention.ms", SET, "x")
    assert alter(client, ResourceType.TOPIC, "t", good, wrong).error_code
    assert overrides(broker, "t") == {}


def test_a_repeated_config_is_an_invalid_request(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    ops = [("segment.ms", SET, "7"), ("segment.ms", DELETE, None)]
    assert alter(client, ResourceType.TOPIC, "t", *ops).error_code == ErrorCode.INVALID_REQUEST


def test_logger_level_is_set_and_reset(client: WireClient) -> None:
    logger = logging.getLogger("odradek.broker.broker")
    before = logger.level
    try:
        kind = ResourceType.BROKER_LOGGER
        options: dict[str, Any] = {"validate_only": True}
        assert alter(client, kind, "1", (logger.name, SET, "ERROR"), **options).error_code == 0
        assert logger.level == before
        assert alter(client, kind, "1", (logger.name, SET, "error")).error_code == ErrorCode.NONE
        assert logger.level == logging.ERROR
        assert alter(client, kind, "1", (logger.name, DELETE, None)).error_code == ErrorCode.NONE
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(before)
