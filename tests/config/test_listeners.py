"""Listeners: the addresses that are read from a Kafka configuration, and the refused ones."""

from __future__ import annotations

import re

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import (
    ListenerAddress,
    advertised_listeners,
    inter_broker_listener,
    listeners,
    security_protocol,
    sets_inter_broker_listener,
)
from odradek.errors import KafkaError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://:9092", [("PLAINTEXT", "", 9092)]),
        ("plaintext://localhost:0", [("PLAINTEXT", "localhost", 0)]),
        ("PLAINTEXT://[::1]:9092", [("PLAINTEXT", "::1", 9092)]),
        ("PLAINTEXT://0.0.0.0:9092", [("PLAINTEXT", "0.0.0.0", 9092)]),
    ],
)
def test_listener_has_a_name_a_host_and_a_port(
    text: str, expected: list[tuple[str, str, int]]
) -> None:
    found = listeners(BrokerConfig({"listeners": text}))
    assert found == tuple(ListenerAddress(*address) for address in expected)


def test_listeners_of_a_controller_are_ignored() -> None:
    config = BrokerConfig(
        {
            "listeners": "INSIDE://:1,OUTSIDE://:2,CONTROLLER://:3",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        }
    )
    assert [address.name for address in listeners(config)] == ["INSIDE", "OUTSIDE"]


@pytest.mark.parametrize(
    "text",
    [
        "localhost:9092",
        "PLAINTEXT://localhost",
        "PLAINTEXT://localhost:70000",
        "SSL://localhost:9092",
        "OTHER://localhost:9092",
        "PLAINTEXT://a:1,PLAINTEXT://b:2",
        "",
    ],
)
def test_listeners_that_cannot_be_served_are_refused(text: str) -> None:
    with pytest.raises(KafkaError):
        listeners(BrokerConfig({"listeners": text}))


def test_unreadable_protocol_map_is_refused() -> None:
    with pytest.raises(KafkaError):
        listeners(BrokerConfig({"listener.security.protocol.map": "PLAINTEXT"}))


def test_nothing_is_advertised_unless_configured() -> None:
    assert advertised_listeners(BrokerConfig({})) == ()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_an_address_of_every_interface_cannot_be_advertised(host: str) -> None:
    with pytest.raises(KafkaError):
        advertised_listeners(BrokerConfig({"advertised.listeners": f"PLAINTEXT://{host}:9092"}))


TWO_LISTENERS = {
    "listeners": "CLIENTS://:1,BROKERS://:2",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,OTHER:SSL",
}


def test_inter_broker_listener_is_the_configured_name() -> None:
    config = BrokerConfig({**TWO_LISTENERS, "inter.broker.listener.name": "brokers"})
    assert inter_broker_listener(config) == "BROKERS"
    assert sets_inter_broker_listener(config)
    assert security_protocol(config, "BROKERS") == "PLAINTEXT"
    assert security_protocol(config, "OTHER") == "SSL"
    assert security_protocol(config, "MISSING") is None


def test_inter_broker_listener_is_by_default_that_of_the_security_protocol() -> None:
    assert inter_broker_listener(BrokerConfig({})) == "PLAINTEXT"
    assert not sets_inter_broker_listener(BrokerConfig({}))
    config = BrokerConfig({"security.inter.broker.protocol": "PLAINTEXT"})
    assert inter_broker_listener(config) == "PLAINTEXT"
    assert sets_inter_broker_listener(config)


def test_an_ssl_inter_broker_protocol_without_such_a_listener_is_refused() -> None:
    config = BrokerConfig({"security.inter.broker.protocol": "SSL"})
    with pytest.raises(KafkaError, match="listeners has no listener of this name, only PLAINTEXT"):
        inter_broker_listener(config)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (
            {"inter.broker.listener.name": "BROKERS", "security.inter.broker.protocol": "SSL"},
            "only one of it and security.inter.broker.protocol may be set",
        ),
        (
            {"inter.broker.listener.name": "CLIENT"},
            "listeners has no listener of this name, only CLIENTS, BROKERS",
        ),
        (
            {
                "inter.broker.listener.name": "BROKERS",
                "advertised.listeners": "CLIENTS://example.org:1",
            },
            "advertised.listeners has no listener of this name, only CLIENTS",
        ),
        (
            {"inter.broker.listener.name": "BROKERS", "controller.listener.names": "BROKERS"},
            "it must not be in controller.listener.names",
        ),
        ({}, "listeners has no listener of this name, only CLIENTS, BROKERS"),
    ],
)
def test_an_inter_broker_listener_that_cannot_be_used_is_refused(
    properties: dict[str, str], reason: str
) -> None:
    with pytest.raises(KafkaError, match=re.escape(reason)):
        inter_broker_listener(BrokerConfig({**TWO_LISTENERS, **properties}))


def test_a_listener_that_is_advertised_but_not_served_cannot_be_the_inter_broker_listener() -> None:
    config = BrokerConfig(
        {
            **TWO_LISTENERS,
            "listeners": "CLIENTS://:1",
            "advertised.listeners": "CLIENTS://a:1,BROKERS://a:2",
            "inter.broker.listener.name": "BROKERS",
        }
    )
    with pytest.raises(KafkaError, match=r"advertised\.listeners has no listener of this name"):
        inter_broker_listener(config)
