"""Connections to servers that refuse, are still starting, or do not respond."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from odradek.cli import client
from odradek.cli.client import server_address, wait_until_listening
from odradek.cli.output import CommandError
from odradek.cli.wire import WireClient


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def connect_and_close(server: str) -> None:
    with WireClient(server):
        pass


def port_of(server: socket.socket) -> int:
    port: int = server.getsockname()[1]
    return port


def test_one_server_that_listens_is_enough(listening: socket.socket) -> None:
    servers = f"127.0.0.1:1, PLAINTEXT://127.0.0.1:{port_of(listening)}"
    wait_until_listening(servers)
    connect_and_close(servers)


def test_unknown_host_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> socket.socket:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(client, "START_PATIENCE_S", 0.0)
    monkeypatch.setattr(socket, "create_connection", unknown)
    for connect in (wait_until_listening, connect_and_close):
        with pytest.raises(CommandError, match=r"at nowhere:9092 \(Name or service not known\)"):
            connect("nowhere:9092")


@pytest.mark.parametrize("connect", [wait_until_listening, connect_and_close])
def test_command_waits_for_a_broker_that_is_still_starting(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[[str], object]
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))  # refuses as long as it does not listen
        pauses: list[float] = []

        def start(pause_s: float) -> None:
            pauses.append(pause_s)
            server.listen()

        monkeypatch.setattr(client, "START_PATIENCE_S", 600.0)
        monkeypatch.setattr("odradek.cli.client.time.sleep", start)
        connect(f"127.0.0.1:{port_of(server)}")
        assert len(pauses) == 1


@pytest.mark.parametrize("error", [TimeoutError(), OSError(113, "No route to host")])
def test_errors_that_may_be_temporary_are_left_to_librdkafka(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fails(*_: object) -> socket.socket:
        raise error

    monkeypatch.setattr(socket, "create_connection", fails)
    wait_until_listening("broker:9092")


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("broker", ("broker", 9092)),
        ("broker:19092", ("broker", 19092)),
        (" SASL_SSL://broker:1 ", ("broker", 1)),
        ("[::1]:19092", ("::1", 19092)),
        ("[::1]", ("::1", 9092)),
        ("broker:port", None),
        ("broker:65536", None),
        ("", None),
    ],
)
def test_servers_are_read_as_librdkafka_does(server: str, address: object) -> None:
    assert server_address(server) == address
