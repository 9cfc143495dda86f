from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.environment.network import ListenOptions, Network
from odradek.protocol.api_keys import ApiKey
from tests.simulation.disk import Inode
from tests.simulation.event_loop import SimulatedClock, SimulatedLoop
from tests.simulation.network import HostNetwork, SimulatedNetwork
from tests.simulation.scheduler import SECOND, Scheduler

OPTIONS = ListenOptions(backlog=10)
ADDRESS = ("server", 9092)


class Peer(asyncio.Protocol):
    """Collects what happens to a connection."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.pieces = 0
        self.events: list[str] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces += 1

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost" if exc is None else type(exc).__name__)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Hosts:
    """A server that accepts, and a client."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.network = SimulatedNetwork(self.scheduler)
        self.loops: dict[str, SimulatedLoop] = {}
        self.ports: dict[str, HostNetwork] = {}
        for host in ("server", "client"):
            loop = SimulatedLoop(self.scheduler, host, SimulatedClock(self.scheduler))
            self.loops[host] = loop
            port: Network = HostNetwork(self.network, loop, host)
            assert isinstance(port, HostNetwork)
            self.ports[host] = port
        self.accepted: list[tuple[Any, Peer]] = []
        self.run("server", self._listen())

    async def _listen(self) -> None:
        (self.listener,) = await self.ports["server"].listen(*ADDRESS, OPTIONS)
        self.listener.watch(self._accept)

    def _accept(self) -> None:
        sock, peer = self.listener.accept(), Peer()
        self.accepted.append((sock, peer))
        self.loops["server"].create_task(self.ports["server"].attach(sock, peer))

    def run(self, host: str, coroutine: Any, seconds: int = 10) -> Any:
        task = self.loops[host].create_task(coroutine)
        self.scheduler.run_until(self.scheduler.now_us + seconds * SECOND, task.done)
        return task.result()

    def connect(self) -> tuple[Peer, Peer, Any]:
        """Return the client's peer, the server's peer, and the server's socket."""
        port = self.ports["client"]
        _, peer = self.run("client", port.connect(*ADDRESS, Peer))
        self.wait()
        sock, far = self.accepted[-1]
        return peer, far, sock

    def wait(self, seconds: float = 1) -> None:
        self.scheduler.run_until(self.scheduler.now_us + int(seconds * SECOND))


@settings(max_examples=30)
@given(st.integers(0, 1000), st.lists(st.binary(min_size=1, max_size=30_000), max_size=20))
def test_bytes_arrive_complete_and_in_order(seed: int, pieces: list[bytes]) -> None:
    hosts = Hosts(seed)
    near, far, _ = hosts.connect()
    for piece in pieces:
        near.transport.write(piece)
        far.transport.write(piece[::-1])
    hosts.wait(60)
    assert far.data == b"".join(pieces)
    assert near.data == b"".join(piece[::-1] for piece in pieces)


def test_bytes_arrive_in_pieces_that_depend_on_the_seed() -> None:
    def pieces(seed: int) -> tuple[int, str]:
        hosts = Hosts(seed)
        near, far, _ = hosts.connect()
        for _ in range(20):
            near.transport.write(b"x" * 100)
            hosts.wait(0.1)
        assert len(far.data) == 2000
        return far.pieces, hosts.scheduler.trace.digest()

    assert pieces(1) == pieces(1)
    assert len({pieces(seed) for seed in range(5)}) == 5
    assert max(pieces(seed)[0] for seed in range(5)) > 20


def test_a_reader_that_pauses_stops_the_writer() -> None:
    hosts = Hosts()
    near, far, _ = hosts.connect()
    near.transport.set_write_buffer_limits(high=0)
    far.transport.pause_reading()
    near.transport.write(bytes(500_000))
    hosts.wait()
    assert near.events == ["pause"]
    assert near.transport.get_write_buffer_size() > 0
    assert not far.data
    far.transport.resume_reading()
    hosts.wait(30)
    assert len(far.data) == 500_000
    assert near.events == ["pause", "resume"]


def test_close_sends_what_was_written() -> None:
    hosts = Hosts()
    near, far, _ = hosts.connect()
    near.transport.write(bytes(400_000))
    near.transport.close()
    hosts.wait(30)
    assert len(far.data) == 400_000
    assert (near.events[-1], far.events) == ("lost", ["eof", "lost"])


def test_abort_breaks_the_connection_for_the_other_end() -> None:
    hosts = Hosts()
    near, far, sock = hosts.connect()
    near.transport.abort()
    hosts.wait()
    assert (near.events, far.events) == (["lost"], ["ConnectionResetError"])
    assert sock.fileno() == -1
    with pytest.raises(BrokenPipeError):
        sock.send(b"x", 0)
    far.transport.write(b"x")


def test_a_broken_connection_is_reported_to_both_ends() -> None:
    hosts = Hosts()
    near, far, _ = hosts.connect()
    assert hosts.network.break_connections("client", "server") == 1
    hosts.wait()
    assert near.events == far.events == ["ConnectionResetError"]


def test_one_direction_is_blocked_until_it_heals() -> None:
    hosts = Hosts()
    near, far, _ = hosts.connect()
    hosts.network.block("server", "client")
    near.transport.write(b"request")
    far.transport.write(b"response")
    hosts.wait(5)
    assert (far.data, near.data) == (b"request", b"")
    hosts.network.heal("server", "client")
    hosts.wait()
    assert near.data == b"response"


@pytest.mark.parametrize("seed", range(10))
def test_only_the_responses_of_one_api_are_blocked(seed: int) -> None:
    hosts = Hosts(seed)
    pairs = [hosts.connect()[:2] for _ in range(2)]
    for (near, _), api in zip(pairs, (ApiKey.FETCH, ApiKey.METADATA), strict=True):
        near.transport.write(_request(ApiKey.API_VERSIONS))
        near.transport.write(_request(api))
    hosts.network.block("client", "server", ApiKey.FETCH)
    hosts.wait()
    hosts.network.block("server", "client", ApiKey.FETCH)
    for _, far in pairs:
        far.transport.write(b"response")
    hosts.wait(5)
    assert all(far.data for _, far in pairs), "requests are not blocked"
    assert [bytes(near.data) for near, _ in pairs] == [b"", b"response"]
    hosts.network.heal("server", "client", ApiKey.FETCH)
    hosts.wait()
    assert [bytes(near.data) for near, _ in pairs] == [b"response", b"response"]


def _request(api: ApiKey) -> bytes:
    body = api.to_bytes(2, "big") + bytes(20)
    return len(body).to_bytes(4, "big") + body


def test_a_slow_direction_is_late_and_in_order() -> None:
    hosts = Hosts()
    near, far, _ = hosts.connect()
    hosts.network.slow["server", "client"] = SECOND
    far.transport.write(b"first ")
    hosts.wait(0.5)
    far.transport.write(b"second")
    near.transport.write(b"request")
    hosts.wait(0.4)
    assert (near.data, far.data) == (b"", b"request")
    hosts.wait(3)
    assert near.data == b"first second"


def test_a_connection_waits_for_a_blocked_network() -> None:
    hosts = Hosts()
    hosts.network.block("server", "client")
    connecting = hosts.loops["client"].create_task(hosts.ports["client"].connect(*ADDRESS, Peer))
    hosts.wait(3)
    assert not connecting.done()
    hosts.network.heal()
    hosts.wait()
    assert connecting.done()


def test_connections_are_refused() -> None:
    hosts = Hosts()
    client = hosts.ports["client"]
    with pytest.raises(ConnectionRefusedError):
        hosts.run("client", client.connect("server", 1, Peer))
    hosts.network.refusing.add("server")
    with pytest.raises(ConnectionRefusedError):
        hosts.run("client", client.connect(*ADDRESS, Peer))
    hosts.network.refusing.clear()
    hosts.listener.close()
    with pytest.raises(ConnectionRefusedError):
        hosts.run("client", client.connect(*ADDRESS, Peer))


def test_an_address_is_bound_once() -> None:
    hosts = Hosts()
    with pytest.raises(OSError, match="in use"):
        hosts.run("server", hosts.ports["server"].listen(*ADDRESS, OPTIONS))


def test_connections_wait_until_the_listener_watches() -> None:
    hosts = Hosts()
    hosts.listener.unwatch()
    hosts.run("client", hosts.ports["client"].connect(*ADDRESS, Peer))
    hosts.wait()
    assert not hosts.accepted
    hosts.listener.watch(hosts._accept)
    hosts.wait()
    assert len(hosts.accepted) == 1
    with pytest.raises(BlockingIOError):
        hosts.listener.accept()


def test_a_killed_process_breaks_its_connections() -> None:
    for power_cut in (False, True):
        hosts = Hosts()
        near, far, _ = hosts.connect()
        hosts.loops["server"].kill()
        hosts.network.process_ended("server", power_cut=power_cut)
        hosts.wait(5)
        assert (near.events, far.events) == (["ConnectionResetError"], [])
        with pytest.raises(ConnectionRefusedError):
            hosts.run("client", hosts.ports["client"].connect(*ADDRESS, Peer))


def test_a_region_is_read_when_its_bytes_are_delivered() -> None:
    hosts = Hosts()
    near, _, sock = hosts.connect()
    inode = Inode()
    inode.write(b"0123456789", 0)
    sock.send(b"<", 0)
    sent = hosts.network.send_region(sock.fileno(), inode, 2, 6)
    inode.truncate(4)
    inode.write(b"ab", 4)
    hosts.wait()
    assert bytes(near.data) == b"<" + b"23ab\0\0"[:sent]
    assert hosts.network.send_region(sock.fileno(), inode, 6, 0) == 0


def test_a_full_socket_takes_no_region() -> None:
    hosts = Hosts()
    near, _, sock = hosts.connect()
    near.transport.pause_reading()
    inode = Inode()
    inode.write(bytes(500_000), 0)
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            sent += hosts.network.send_region(sock.fileno(), inode, sent, 500_000 - sent)
    with pytest.raises(BlockingIOError):
        sock.send(b"x", 0)
    near.transport.resume_reading()
    hosts.wait()
    assert len(near.data) == sent


def test_a_change_of_bytes_in_flight_is_reported() -> None:
    for changed in (False, True):
        hosts = Hosts()
        problems: list[str] = []
        hosts.network.report = problems.append
        _, _, sock = hosts.connect()
        inode = Inode()
        inode.write(b"0123456789", 0)
        hosts.network.send_region(sock.fileno(), inode, 2, 6)
        if changed:
            inode.write(b"x", 2)
        hosts.wait()
        assert bool(problems) == changed
