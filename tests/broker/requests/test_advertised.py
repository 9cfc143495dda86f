"""Addresses that the broker advertises to clients."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from odradek.broker.requests.advertised import advertised_address, broker_address
from odradek.config.broker import BrokerConfig
from odradek.ids import BrokerId
from odradek.metadata.image import BrokerRegistration, Endpoint


@dataclass
class Arrived:
    local_address: tuple[str, int]
    listener_name: str = "PLAINTEXT"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.0.0.5", "10.0.0.5"),
        ("::ffff:10.0.0.5", "10.0.0.5"),
        ("::FFFF:10.0.0.5", "10.0.0.5"),
        ("::1", "::1"),
        ("::ffff:a00:5", "::ffff:a00:5"),
    ],
)
def test_the_advertised_address_is_the_one_that_the_client_connected_to(
    host: str, expected: str
) -> None:
    assert advertised_address(BrokerConfig({}), Arrived((host, 9092))) == (expected, 9092)


def test_advertised_listeners_apply_to_the_listener_of_the_same_name() -> None:
    config = BrokerConfig({"advertised.listeners": "PLAINTEXT://outside:19092"})
    assert advertised_address(config, Arrived(("10.0.0.5", 9092))) == ("outside", 19092)
    other = Arrived(("10.0.0.5", 9093), "INSIDE")
    assert advertised_address(config, other) == ("10.0.0.5", 9093)


def test_the_address_of_another_broker_is_that_of_its_registered_listener() -> None:
    config = BrokerConfig({"node.id": "1"})
    listeners = (Endpoint("INSIDE", "10.0.0.7", 9092), Endpoint("OUTSIDE", "b7.example", 19092))
    other = BrokerRegistration(BrokerId(7), "10.0.0.7", 9092, listeners=listeners)
    own = BrokerRegistration(BrokerId(1), "10.0.0.1", 9092, listeners=listeners)
    inside, outside = (Arrived(("10.0.0.5", 9093), name) for name in ("INSIDE", "OUTSIDE"))
    assert broker_address(config, inside, other) == ("10.0.0.7", 9092)
    assert broker_address(config, outside, other) == ("b7.example", 19092)
    assert broker_address(config, Arrived(("10.0.0.5", 9093), "ELSEWHERE"), other) is None
    assert broker_address(config, outside, own) == ("10.0.0.5", 9093)
