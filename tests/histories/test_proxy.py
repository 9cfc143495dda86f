"""The faults of the network, frame by frame."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from conformance.histories.proxy import END_TXN, HOST, PRODUCE, Proxy
from conformance.peer.server import free_ports

METADATA = 3


def _frame(kind: int, number: int, client: bytes = b"c") -> bytes:
    body = struct.pack(">hhih", kind, 0, number, len(client)) + client
    return struct.pack(">i", len(body)) + body


class Broker:
    """Keeps the numbers of the requests in the order of arrival, and echoes each."""

    def __init__(self) -> None:
        self.listener = socket.create_server((HOST, 0))
        self.port = self.listener.getsockname()[1]
        self.arrived: list[int] = []
        self.changed = threading.Condition()
        self.peers: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def wait_for(self, count: int) -> list[int]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.arrived) >= count, 30)
            return list(self.arrived)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for peer in self.peers:
            peer.close()

    def _accept(self) -> None:
        try:
            while True:
                peer, _ = self.listener.accept()
                self.peers.append(peer)
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()
        except OSError:
            return

    def _serve(self, peer: socket.socket) -> None:
        try:
            with peer, peer.makefile("rb") as stream:
                while size := stream.read(4):
                    body = stream.read(struct.unpack(">i", size)[0])
                    with self.changed:
                        self.arrived.append(struct.unpack_from(">i", body, 4)[0])
                        self.changed.notify_all()
                    peer.sendall(size + body)
        except OSError:
            return


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.close()


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    (port,) = free_ports(1)
    made = Proxy(port, broker.port)
    yield made
    made.close()


@pytest.fixture
def connect(proxy: Proxy) -> Iterator[object]:
    with ExitStack() as stack:

        def make() -> socket.socket:
            made = stack.enter_context(socket.create_connection((HOST, proxy.port), timeout=30))
            made.sendall(_frame(METADATA, 0))
            assert len(made.recv(1 << 16)) == len(_frame(METADATA, 0))
            return made

        yield make


def _in_background(fault: object, *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=fault, args=arguments)  # type: ignore[arg-type]
    thread.start()
    return thread


def _is_over(peer: socket.socket) -> bool:
    """Without an answer."""
    try:
        return peer.recv(1 << 16) == b""
    except ConnectionResetError:
        return True


def _until(proxy: Proxy, state: str) -> None:
    """The fault has begun: the links are in this state."""
    waited = threading.Event()
    for _ in range(3000):
        if any(getattr(link, state) for link in proxy.links):
            return
        waited.wait(0.001)
    raise AssertionError("the fault does not begin")


def test_a_cut_ends_the_connection(connect, proxy: Proxy) -> None:  # type: ignore[no-untyped-def]
    peer = connect()
    assert proxy.cut() == 1
    assert _is_over(peer)


def test_a_muted_request_arrives_and_its_answer_does_not(
    connect, proxy: Proxy, broker: Broker
) -> None:  # type: ignore[no-untyped-def]
    peer = connect()
    fault = _in_background(proxy.mute, 0.3)
    _until(proxy, "muted")
    peer.sendall(_frame(PRODUCE, 1))
    assert broker.wait_for(2) == [0, 1]
    assert _is_over(peer)
    fault.join()


def test_a_delayed_request_is_overtaken_by_another_connection(
    connect, proxy: Proxy, broker: Broker
) -> None:  # type: ignore[no-untyped-def]
    slow, quick = connect(), connect()
    fault = _in_background(proxy.delay, 0.5, frozenset({PRODUCE}))
    _until(proxy, "holds")
    slow.sendall(_frame(PRODUCE, 1))
    quick.sendall(_frame(METADATA, 2))
    assert broker.wait_for(4) == [0, 0, 2, 1]
    fault.join()
    assert slow.recv(1 << 16) == _frame(PRODUCE, 1)


def test_a_late_request_arrives_after_its_connection_has_gone(
    connect, proxy: Proxy, broker: Broker
) -> None:  # type: ignore[no-untyped-def]
    peer = connect()
    fault = _in_background(proxy.late, 0.3, 0.0, frozenset({PRODUCE}))
    _until(proxy, "holds")
    peer.sendall(_frame(PRODUCE, 1) + _frame(METADATA, 2))
    assert _is_over(peer)
    fault.join()
    assert broker.wait_for(2) == [0, 1]


def test_the_end_of_a_transaction_overtakes_what_its_client_produced(
    connect, proxy: Proxy, broker: Broker
) -> None:  # type: ignore[no-untyped-def]
    mine, coordinator, other = connect(), connect(), connect()
    fault = _in_background(proxy.overtake, 1.0)
    _until(proxy, "holds")
    mine.sendall(_frame(PRODUCE, 1, b"me"))
    other.sendall(_frame(END_TXN, 2, b"you"))
    coordinator.sendall(_frame(END_TXN, 3, b"me"))
    arrived = broker.wait_for(6)
    assert arrived.index(3) < arrived.index(1)
    fault.join()
    assert proxy.overtaken == 1
