"""The separation of processes: which connections are possible, and who sends them."""

from __future__ import annotations

import pytest

from odradek.client.connection import ClientConnection
from odradek.testing.link_proxies import Separation, sender_of

CUT = Separation(frozenset({2, 3}))


@pytest.mark.parametrize(
    ("sender", "broker", "is_allowed"),
    [(1, 2, False), (2, 1, False), (2, 3, True), (1, 4, True), (2, 2, True), (None, 2, True)],
)
def test_brokers_on_one_side_reach_each_other(
    sender: int | None, broker: int, is_allowed: bool
) -> None:
    assert CUT.allows(sender, broker) is is_allowed


def test_clients_are_cut_off_on_request() -> None:
    cut = Separation(frozenset({2}), from_clients=True)
    assert not cut.allows(None, 2)
    assert cut.allows(None, 1)


def test_the_store_is_cut_off_on_request() -> None:
    assert CUT.allows_store(2)
    assert not Separation(without_store=frozenset({2})).allows_store(2)


@pytest.mark.parametrize(
    ("client_id", "sender"),
    [("broker-2-heartbeat", 2), ("broker-13-fetcher-in-sync", 13), ("rdkafka", None), ("", None)],
)
def test_the_first_request_names_its_sender(client_id: str, sender: int | None) -> None:
    request = ClientConnection(client_id).api_versions("odradek", "0")
    assert sender_of(bytes(request)) == sender
