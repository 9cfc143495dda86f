"""The faults of the network, frame by frame."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from conformance.histories.proxy import END_TXN, HOST, OVERTAKEN_S, PRODUCE, Link, Proxy

from testkit.wire import receive_exactly

METADATA = 3
DEADLINE_S = 120.0
FOR_S = 7.0  # of each fault, as a key only: the test ends the fault, see `Clock`


def _frame(kind: int, number: int, client: bytes = b"c") -> bytes:
    body = struct.pack(">hhih", kind, 0, number, len(client)) + client
    return struct.pack(">i", len(body)) + body


class Broker:
    """A broker that keeps the requests' numbers in the order of arrival and echoes each."""

    def __init__(self) -> None:
        self.listener = socket.create_server((HOST, 0))
        self.port = self.listener.getsockname()[1]
        self.arrived: list[int] = []
        self.changed = threading.Condition()
        self.peers: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def wait_for(self, count: int) -> list[int]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.arrived) >= count, DEADLINE_S)
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
    made = Proxy(0, broker.port)
    yield made
    made.close()


class Clock:
    """The proxy's clock. The test decides when a time has passed, for slow machines too."""

    def __init__(self, proxy: Proxy) -> None:
        self.loop = proxy.loop
        self.passed: dict[float, asyncio.Event] = {}
        proxy.sleep = self._sleep

    def let_pass(self, for_s: float) -> None:
        self.loop.call_soon_threadsafe(lambda: self._event(for_s).set())

    async def _sleep(self, for_s: float) -> None:
        await self._event(for_s).wait()

    def _event(self, for_s: float) -> asyncio.Event:
        return self.passed.setdefault(for_s, asyncio.Event())


@pytest.fixture
def clock(proxy: Proxy) -> Iterator[Clock]:
    made = Clock(proxy)
    yield made
    made.let_pass(FOR_S)  # a failed test may have left its fault
    made.let_pass(OVERTAKEN_S)


@pytest.fixture
def connect(proxy: Proxy) -> Iterator[object]:
    with ExitStack() as stack:

        def make() -> socket.socket:
            address = (HOST, proxy.port)
            made = stack.enter_context(socket.create_connection(address, timeout=DEADLINE_S))
            made.sendall(_frame(METADATA, 0))
            size = len(_frame(METADATA, 0))
            assert len(receive_exactly(made, size)) == size
            return made

        yield make


def _in_background(fault: object, *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=fault, args=arguments)  # type: ignore[arg-type]
    thread.start()
    return thread


def _is_over(peer: socket.socket) -> bool:
    """Return whether the peer closed the connection without a response."""
    try:
        return peer.recv(1 << 16) == b""
    except ConnectionResetError:
        return True


def _until(proxy: Proxy, seen: Callable[[Link], object], count: int = 1) -> None:
    """Wait until this many links are in a state."""
    deadline = time.monotonic() + DEADLINE_S
    while sum(bool(seen(link)) for link in list(proxy.links)) < count:
        assert time.monotonic() < deadline, "the fault does not begin"
        threading.Event().wait(0.001)


def _holds(link: Link) -> object:
    return link.holds


def test_a_cut_ends_the_connection(connect, proxy: Proxy) -> None:  # type: ignore[no-untyped-def]
    peer = connect()
    assert proxy.cut() == 1
    assert _is_over(peer)


def test_a_muted_request_arrives_and_its_response_does_not(
    connect, proxy: Proxy, broker: Broker, clock: Clock
) -> None:  # type: ignore[no-untyped-def]
    peer = connect()
    fault = _in_background(proxy.mute, FOR_S)
    _until(proxy, lambda link: link.muted)
    peer.sendall(_frame(PRODUCE, 1))
    assert broker.wait_for(2) == [0, 1]
    clock.let_pass(FOR_S)
    assert _is_over(peer)
    fault.join()


def test_a_delayed_request_is_overtaken_by_another_connection(
    connect, proxy: Proxy, broker: Broker, clock: Clock
) -> None:  # type: ignore[no-untyped-def]
    slow, quick = connect(), connect()
    fault = _in_background(proxy.delay, FOR_S, frozenset({PRODUCE}))
    _until(proxy, _holds, 2)
    slow.sendall(_frame(PRODUCE, 1))
    _until(proxy, lambda link: link.held)
    quick.sendall(_frame(METADATA, 2))
    assert broker.wait_for(3) == [0, 0, 2]
    clock.let_pass(FOR_S)
    assert broker.wait_for(4) == [0, 0, 2, 1]
    fault.join()
    response = _frame(PRODUCE, 1)
    assert receive_exactly(slow, len(response)) == response


def test_a_late_request_arrives_after_its_connection_has_gone(
    connect, proxy: Proxy, broker: Broker, clock: Clock
) -> None:  # type: ignore[no-untyped-def]
    peer = connect()
    fault = _in_background(proxy.late, FOR_S, 0.0, frozenset({PRODUCE}))
    _until(proxy, _holds)
    peer.sendall(_frame(PRODUCE, 1) + _frame(METADATA, 2))
    _until(proxy, lambda link: len(link.held) == 2)
    assert broker.wait_for(1) == [0]
    clock.let_pass(FOR_S)
    assert _is_over(peer)
    fault.join()
    assert broker.wait_for(2) == [0, 1]


def test_the_end_of_a_transaction_overtakes_its_clients_produce_request(
    connect, proxy: Proxy, broker: Broker, clock: Clock
) -> None:  # type: ignore[no-untyped-def]
    mine, coordinator, other = connect(), connect(), connect()
    fault = _in_background(proxy.overtake, FOR_S)
    _until(proxy, _holds, 3)
    mine.sendall(_frame(PRODUCE, 1, b"me"))
    _until(proxy, lambda link: link.held)
    other.sendall(_frame(END_TXN, 2, b"you"))
    assert broker.wait_for(4) == [0, 0, 0, 2]
    coordinator.sendall(_frame(END_TXN, 3, b"me"))
    assert broker.wait_for(5) == [0, 0, 0, 2, 3]
    clock.let_pass(OVERTAKEN_S)
    assert broker.wait_for(6) == [0, 0, 0, 2, 3, 1]
    clock.let_pass(FOR_S)
    fault.join()
    assert proxy.overtaken == 1
