"""The blocking client on a live broker, and on sockets that misbehave."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.client.blocking import BlockingClient
from odradek.client.connection import ConnectionClosed, InvalidResponse
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.metadata_response import MetadataResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import ProduceResponse
from odradek.testing import Broker
from testkit.requests import batch, fetch, produce
from testkit.wire import receive_exactly

TIMEOUT_S = 120.0
CALLS = 300


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("t")
        yield running


def address_of(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return host, int(port)


class Peer:
    """A listening socket whose single connection is served by `serve` in a thread."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self._serve = serve
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Peer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed before a client connected
            connection, _ = self.listener.accept()
            with connection:
                self._serve(connection)


def silent(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def close_after_request(connection: socket.socket) -> None:
    connection.recv(1 << 16)


def respond_to_another_request(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(struct.pack(">iih", 6, 77, 0))
    silent(connection)


def metadata(*names: str) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], False)


@pytest.mark.parametrize("read_ahead", [True, False])
def test_blocking_calls_and_pipelined_requests(broker: Broker, read_ahead: bool) -> None:
    with BlockingClient.connect(
        address_of(broker), TIMEOUT_S, "me", read_ahead=read_ahead
    ) as client:
        client.negotiate()
        sent = [client.send(metadata("t")) for _ in range(CALLS)]
        assert [client.receive().correlation_id for _ in sent] == sent
        value = b"x" * 600_000
        client.send(ProduceRequest(None, 0, 1000, produce("t", batch(value)).topic_data), 9)
        response = client.call(produce("t", batch(value)), ProduceResponse, 9)
        assert response.responses[0].partition_responses[0].base_offset == 1
        found = client.call(fetch("t"), FetchResponse, 12)
        records = found.responses[0].partitions[0].records
        assert records is not None and len(bytes(records)) > len(value)


def test_without_reading_ahead_the_rest_is_left_in_the_socket(broker: Broker) -> None:
    with BlockingClient.connect(address_of(broker), TIMEOUT_S, read_ahead=False) as client:
        client.send(ApiVersionsRequest("a", "1"), 3)
        client.send(ApiVersionsRequest("a", "1"), 3)
        first = client.receive_frame()
        (size,) = struct.unpack(">i", receive_exactly(client.socket, 4))
        assert size == len(first)


def test_blocking_call_with_the_wrong_response_class_is_an_error(broker: Broker) -> None:
    with BlockingClient.connect(address_of(broker), TIMEOUT_S) as client:
        with pytest.raises(TypeError):
            client.call(metadata("t"), ApiVersionsResponse, 9)


@pytest.mark.parametrize(
    ("serve", "error"),
    [(close_after_request, ConnectionClosed), (respond_to_another_request, InvalidResponse)],
)
def test_blocking_call_ends_with_the_connection(serve: Any, error: type[Exception]) -> None:
    with Peer(serve) as peer, BlockingClient.connect(peer.address, TIMEOUT_S) as client:
        with pytest.raises(error):
            client.call(metadata("t"), MetadataResponse, 9)


def test_blocking_call_ends_after_its_timeout() -> None:
    with Peer(silent) as peer, BlockingClient.connect(peer.address, TIMEOUT_S) as client:
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.call(metadata("t"), MetadataResponse, 9)
