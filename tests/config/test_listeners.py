"""Listeners: the addresses that are read from a Kafka configuration, and the refused ones."""

from __future__ import annotations

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.listeners import ListenerAddress, advertised_listeners, listeners
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
