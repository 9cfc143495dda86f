"""DescribeConfigs over the wire: topics, brokers, loggers, synonyms, types, documentation."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.handlers import describe_configs
from odradek.config.broker import BROKER_CONFIGS, ConfigSource
from odradek.config.definition import ConfigType
from odradek.config.topic import TOPIC_CONFIGS
from odradek.errors import ErrorCode
from odradek.metadata.resources import ResourceType
from odradek.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.testing import Broker
from testkit.wire import WireClient
from tests.broker.handlers.test_incremental_alter_configs import alter

ALL_VERSIONS = range(1, 5)


def describe(
    client: WireClient,
    kind: int,
    name: str,
    *keys: str,
    version: int = 4,
    **options: bool,
) -> Any:
    resource = DescribeConfigsResource(kind, name, list(keys) if keys else None)
    (result,) = client.call(DescribeConfigsRequest([resource], **options), version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def by_name(result: Any) -> dict[str, Any]:
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_every_version_has_all_topic_configs(
    broker: Broker, client: WireClient, version: int
) -> None:
    broker.create_topic("t", 1, {"retention.ms": "5"})
    result = describe(client, ResourceType.TOPIC, "t", version=version)
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, "")
    configs = by_name(result)
    assert set(configs) == set(TOPIC_CONFIGS)
    retention = configs["retention.ms"]
    assert (retention.value, retention.read_only, retention.is_sensitive) == ("5", False, False)
    assert retention.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert retention.config_type == (ConfigType.LONG if version >= 3 else 0)
    assert retention.synonyms == []
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].config_source == ConfigSource.DEFAULT_CONFIG
    assert configs["min.cleanable.dirty.ratio"].value == "0.5"
    assert configs["preallocate"].value == "false"


@pytest.mark.parametrize("config", [{"log.segment.bytes": "2000000", "log.retention.hours": "2"}])
def test_synonyms_are_the_possible_sources_of_a_topic_config(
    broker: Broker, client: WireClient
) -> None:
    broker.create_topic("t", 1, {"segment.bytes": "3000000"})
    broker.create_topic("u")
    options = {"include_synonyms": True}
    (own,) = describe(client, ResourceType.TOPIC, "t", "segment.bytes", **options).configs
    assert [(it.name, it.value, it.source) for it in own.synonyms] == [
        ("segment.bytes", "3000000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.segment.bytes", "2000000", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    ]
    (inherited,) = describe(client, ResourceType.TOPIC, "u", "segment.bytes", **options).configs
    assert inherited.value == "2000000"
    assert inherited.config_source == ConfigSource.STATIC_BROKER_CONFIG
    # A config that is set in another unit has a value and no synonym, as in Kafka.
    (hours,) = describe(client, ResourceType.TOPIC, "u", "retention.ms", **options).configs
    assert (hours.value, hours.synonyms) == ("7200000", [])


@pytest.mark.parametrize("version", [3, 4])
def test_documentation_is_returned_on_request(client: WireClient, version: int) -> None:
    for documented in (True, False):
        result = describe(
            client, ResourceType.BROKER, "1", version=version, include_documentation=documented
        )
        assert all(bool(config.documentation) is documented for config in result.configs)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_every_version_has_all_broker_configs(client: WireClient, version: int) -> None:
    configs = by_name(describe(client, ResourceType.BROKER, "1", version=version))
    assert set(configs) == {name for name, key in BROKER_CONFIGS.items() if not key.internal}
    assert configs["num.partitions"].read_only
    assert configs["num.partitions"].value == "1"
    assert not configs["message.max.bytes"].read_only
    assert configs["listeners"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert configs["broker.rack"].value is None


def test_repeated_resources_are_described_up_to_a_limit(broker: Broker, client: WireClient) -> None:
    broker.create_topic("t")
    resource = DescribeConfigsResource(ResourceType.TOPIC, "t", None)
    twice = client.call(DescribeConfigsRequest([resource] * 2), 4).results
    assert twice[0] == twice[1]
    often = client.call(DescribeConfigsRequest([resource] * 5000), 4).results
    assert [result.error_code for result in often[:50]] == [ErrorCode.NONE] * 50
    assert often[-1].error_code == ErrorCode.INVALID_REQUEST
    assert sum(len(result.configs) for result in often) < 200 * len(TOPIC_CONFIGS)


def test_configuration_keys_select_configs(client: WireClient) -> None:
    result = describe(client, ResourceType.BROKER, "1", "num.partitions", "nope")
    assert [config.name for config in result.configs] == ["num.partitions"]


def test_broker_without_a_name_has_the_dynamic_defaults(broker: Broker, client: WireClient) -> None:
    assert describe(client, ResourceType.BROKER, "").configs == []

    async def alter(server: Any) -> None:
        server.config.set_dynamic({"log.segment.bytes": "9999999"}, {"message.max.bytes": "7777"})

    broker.call(alter)
    (config,) = describe(client, ResourceType.BROKER, "").configs
    assert (config.name, config.value) == ("message.max.bytes", "7777")
    assert config.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    own = by_name(describe(client, ResourceType.BROKER, "1"))["log.segment.bytes"]
    assert own.config_source == ConfigSource.DYNAMIC_BROKER_CONFIG


def test_loggers_have_log4j_levels(client: WireClient) -> None:
    configs = by_name(describe(client, ResourceType.BROKER_LOGGER, "1"))
    assert configs["root"].config_source == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    levels = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}
    assert {config.value for config in configs.values()} <= levels
    assert "odradek.broker.broker" in configs


def values_of(client: WireClient, kind: int, name: str) -> dict[str, Any]:
    """Return value, source and synonyms of each config."""
    result = describe(client, kind, name, include_synonyms=True)
    assert result.error_code == ErrorCode.NONE
    assert not any(each.read_only or each.is_sensitive for each in result.configs)
    return {
        each.name: (
            each.value,
            each.config_source,
            [(it.name, it.value, it.source) for it in each.synonyms],
            each.config_type,
        )
        for each in result.configs
    }


@pytest.mark.parametrize("config", [{"group.consumer.heartbeat.interval.ms": "6000"}])
def test_group_configs_override_broker_configs(client: WireClient) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    default, static = ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG
    behind = [(f"group.{session}", "45000", default)]
    expected = {
        session: ("45000", default, behind, ConfigType.INT),
        heartbeat: (
            "6000",
            static,
            [(f"group.{heartbeat}", "6000", static), (f"group.{heartbeat}", "5000", default)],
            ConfigType.INT,
        ),
    }
    assert values_of(client, ResourceType.GROUP, "g") == expected
    assert not alter(client, ResourceType.GROUP, "g", (session, 0, "50000")).error_code
    own = ConfigSource.GROUP_CONFIG
    expected[session] = ("50000", own, [(session, "50000", own), *behind], ConfigType.INT)
    assert values_of(client, ResourceType.GROUP, "g") == expected
    assert values_of(client, ResourceType.GROUP, "h")[session][0] == "45000"


def test_client_metrics_have_defaults_and_overrides(client: WireClient) -> None:
    default, own = ConfigSource.DEFAULT_CONFIG, ConfigSource.CLIENT_METRICS_CONFIG
    expected: dict[str, Any] = {
        "interval.ms": ("300000", default, [], ConfigType.INT),
        "match": ("", default, [], ConfigType.LIST),
        "metrics": ("", default, [], ConfigType.LIST),
    }
    kind = ResourceType.CLIENT_METRICS
    assert values_of(client, kind, "m") == expected
    assert not alter(client, kind, "m", ("match", 0, "client_id=a.*")).error_code
    expected["match"] = ("client_id=a.*", own, [("match", "client_id=a.*", own)], ConfigType.LIST)
    assert values_of(client, kind, "m") == expected


@pytest.mark.parametrize("kind", [ResourceType.CLIENT_METRICS, ResourceType.GROUP])
def test_groups_and_client_metrics_without_a_name_are_refused(
    client: WireClient, kind: int
) -> None:
    assert describe(client, kind, "").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (ResourceType.TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ResourceType.TOPIC, "b d", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ResourceType.TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ResourceType.BROKER, "2", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "one", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_missing_resource_has_an_error_message(
    client: WireClient, kind: int, name: str, code: ErrorCode
) -> None:
    result = describe(client, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert bool(result.error_message) == (code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_wrong_override_of_another_program_is_shown_as_it_was_stored(
    broker: Broker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no effect on the log. An administrator finds it and deletes it."""
    overrides = {"retention.ms": "-2", "segment.bytes": "3000000"}
    monkeypatch.setattr(describe_configs, "_topic_overrides", lambda *_: overrides)
    broker.create_topic("t")
    result = describe(client, ResourceType.TOPIC, "t", include_synonyms=True)
    assert (result.error_code, set(by_name(result))) == (ErrorCode.NONE, set(TOPIC_CONFIGS))
    wrong, right = by_name(result)["retention.ms"], by_name(result)["segment.bytes"]
    assert (wrong.value, right.value) == ("-2", "3000000")
    assert wrong.config_source == right.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert wrong.synonyms[0].value == "-2"
