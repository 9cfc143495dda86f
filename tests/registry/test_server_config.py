"""Configs of an instance: names of Confluent's file, and refusals in one line."""

from __future__ import annotations

import pytest

from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.kafka_settings import KafkaSettings, RefusedSetting
from odradek.registry.server import ServerOptions
from odradek.registry.server_config import server_options, unknown_configs


def test_no_config_gives_the_defaults() -> None:
    assert server_options({}) == ServerOptions(KafkaSettings("127.0.0.1:9092"))


def test_the_names_of_confluents_file_are_read() -> None:
    options = server_options(
        {
            "listeners": "http://0.0.0.0:8085",
            "kafkastore.bootstrap.servers": "SASL_SSL://a:9092,SASL_SSL://b:9092",
            "kafkastore.topic": "_schemas2",
            "schema.compatibility.level": "full_transitive",
            "advertised.url": "http://registry-1:8085",
            "kafka.sasl.password": "secret",
        }
    )
    assert (options.host, options.port) == ("0.0.0.0", 8085)
    assert options.kafka.bootstrap_servers == "SASL_SSL://a:9092,SASL_SSL://b:9092"
    assert options.kafka.topic == "_schemas2"
    assert options.kafka.properties == {"sasl.password": "secret"}
    assert options.default_level is CompatibilityLevel.FULL_TRANSITIVE
    assert options.advertised_url == "http://registry-1:8085"
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("http://host:1", ("host", 1)),
        ("http://[::1]:8081", ("::1", 8081)),
        (":8081", ("0.0.0.0", 8081)),
        ("http://:8081,https://:8082", ("0.0.0.0", 8081)),
    ],
)
def test_a_listener_is_host_and_port(listener: str, expected: tuple[str, int]) -> None:
    options = server_options({"listeners": listener})
    assert (options.host, options.port) == expected


@pytest.mark.parametrize(
    ("configs", "named"),
    [
        ({"listeners": "8081"}, "--listen"),
        ({"listeners": "host:70000"}, "--listen"),
        ({"listeners": "https://host:8081"}, "--listen"),
        ({"kafkastore.topic": "a b"}, "--topic"),
        ({"kafkastore.topic": ""}, "--topic"),
        ({"kafkastore.bootstrap.servers": " "}, "kafkastore.bootstrap.servers"),
        ({"schema.compatibility.level": "SIDEWAYS"}, "schema.compatibility.level"),
        ({"advertised.url": "registry-1:8081"}, "--advertise"),
        ({"advertised.url": "http://user:pass@registry-1:8081"}, "--advertise"),
        ({"advertised.url": "http://registry-1:port"}, "--advertise"),
        ({"kafka.group.id": "mine"}, "group.id"),
    ],
)
def test_an_invalid_config_is_refused_in_one_line(configs: dict[str, str], named: str) -> None:
    with pytest.raises(RefusedSetting) as raised:
        server_options(configs)
    line = str(raised.value)
    assert named in line
    assert "\n" not in line and "pass" not in line


def test_unknown_configs_are_listed() -> None:
    configs = {"kafkastore.topic": "t", "kafka.debug": "all", "listners": "x", "a": "b"}
    assert unknown_configs(configs) == ["a", "listners"]
