"""The separation of processes: which connections are possible, and who sends them."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from odradek.client.connection import ClientConnection
from odradek.testing.link_proxies import (
    CLIENTS,
    Conditions,
    Direction,
    LinkProxies,
    Separation,
    sender_of,
)
from testkit.wire import receive_exactly

LIMIT_S = 60.0
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


@pytest.mark.parametrize(
    ("direction", "delay_s"),
    [
        (("broker-1", "broker-2"), None),
        (("broker-2", "broker-1"), 0.0),
        ((CLIENTS, "broker-2"), 0.5),
        (("broker-2", CLIENTS), 0.0),
    ],
)
def test_the_bytes_of_one_direction_are_held_or_slow(
    direction: Direction, delay_s: float | None
) -> None:
    held = frozenset({("broker-1", "broker-2")})
    conditions = Conditions(held, {(CLIENTS, "broker-2"): 1000})
    assert conditions.delay_s(direction, 500) == delay_s


def test_held_bytes_arrive_after_the_direction_is_free_again() -> None:
    request = bytes(ClientConnection("broker-1-fetcher").api_versions("odradek", "0"))
    with socket.create_server(("127.0.0.1", 0)) as behind, closing(LinkProxies()) as proxies:
        behind.settimeout(LIMIT_S)
        port = proxies.to_broker(2, behind.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as sender:
            sender.sendall(request)
            receiver, _ = behind.accept()
            with receiver:
                receiver.settimeout(LIMIT_S)
                assert receive_exactly(receiver, len(request)) == request
                proxies.hold(Conditions(frozenset({("broker-1", "broker-2")})))
                sender.sendall(request)
                receiver.sendall(b"response")  # the other direction is free
                assert receive_exactly(sender, 8) == b"response"
                receiver.setblocking(False)
                with pytest.raises(BlockingIOError):
                    receiver.recv(1)
                proxies.hold(Conditions())
                receiver.settimeout(LIMIT_S)
                assert receive_exactly(receiver, len(request)) == request
