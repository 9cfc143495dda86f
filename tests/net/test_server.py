"""Listening, accepting, limits on connections, idleness, and a graceful stop, on real sockets."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import weakref
from typing import Any

import pytest

from odradek.environment import sockets
from odradek.environment.clock import ManualClock
from odradek.environment.sockets import BoundSocket
from odradek.environment.timers import LoopTimers
from odradek.net.connection import Chunks
from odradek.net.limits import NetLimits
from odradek.net.listener import BindError, Endpoint
from odradek.net.server import Server
from odradek.result_tasks import in_task
from odradek.results import PendingResult, Result
from tests.helpers.programs import run_program
from tests.net.support import (
    DEADLINE_S,
    Peer,
    frame,
    iterations,
    on_both_loops,
    open_descriptors,
    run,
    serving,
    until,
    until_descriptors_at_most,
)


def echo(_: Any, view: memoryview) -> list[bytes]:
    return [bytes(view)]


async def responds(peer: Peer) -> bool:
    await peer.send(frame(b"question"))
    return await peer.read_frame() == b"question"


async def one_connection(server: Server) -> None:
    """Open and close a connection: uvloop opens a descriptor of its own for the first one."""
    peer = await Peer.connect(server)
    assert await responds(peer)
    peer.close()
    await until(lambda: not server.connections)
    await iterations(20)


@on_both_loops
def test_requests_carry_the_name_of_their_listener(loop: str) -> None:
    seen: list[tuple[str, tuple[str, int]]] = []

    def dispatch(connection: Any, view: memoryview) -> list[bytes]:
        seen.append((connection.listener_name, connection.local_address))
        return [bytes(view)]

    async def main() -> None:
        server = Server(dispatch, clock=ManualClock(), timers=LoopTimers())
        await server.start(
            [Endpoint("INSIDE", "127.0.0.1", 0), Endpoint("OUTSIDE", "127.0.0.1", 0)]
        )
        for endpoint in server.endpoints:
            peer = Peer(socket.create_connection((endpoint.host, endpoint.port)))
            peer.sock.setblocking(False)
            assert await responds(peer)
            peer.close()
        inside, outside = server.endpoints
        assert seen == [
            ("INSIDE", ("127.0.0.1", inside.port)),
            ("OUTSIDE", ("127.0.0.1", outside.port)),
        ]
        await server.stop(0)

    run(main(), loop)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_empty_host_serves_both_families_and_shows_ipv4_addresses() -> None:
    seen: list[tuple[str, str]] = []

    def dispatch(connection: Any, view: memoryview) -> list[bytes]:
        seen.append((connection.local_address[0], connection.peer_address[0]))
        return [bytes(view)]

    async def main() -> None:
        async with serving(dispatch, host="") as server:
            for host in ("127.0.0.1", "::1"):
                peer = Peer(socket.create_connection((host, server.endpoints[0].port)))
                peer.sock.setblocking(False)
                assert await responds(peer)
                peer.close()

    run(main())
    assert seen == [("127.0.0.1", "127.0.0.1"), ("::1", "::1")]


def test_a_name_is_bound_to_all_its_addresses_on_one_port() -> None:
    async def main() -> None:
        async with serving(echo, host="localhost") as server:
            assert len({endpoint.port for endpoint in server.endpoints}) == 1
            assert server.endpoints[0].host == "127.0.0.1"

    run(main())


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("127.0.0.1", "the port is in use by another program"),
        ("203.0.113.77", "this machine does not have the address"),
        ("no.such.host.invalid", "the host is unknown"),
    ],
)
def test_a_bind_error_is_one_clear_line(
    host: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def without_asking_the_network(name: Any, *more: Any, **options: Any) -> Any:
        if name == host and host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(name, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", without_asking_the_network)

    async def main() -> None:
        base = open_descriptors()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            server = Server(echo, clock=ManualClock(), timers=LoopTimers())
            with pytest.raises(BindError) as caught:
                await server.start(
                    [Endpoint("PLAINTEXT", "127.0.0.1", 0), Endpoint("OUTSIDE", host, port)]
                )
            assert reason in str(caught.value)
            assert f"OUTSIDE://{host}:{port}" in str(caught.value)
            assert "\n" not in str(caught.value)
            await server.stop()
        await until_descriptors_at_most(base)

    run(main())


@on_both_loops
def test_at_max_connections_new_connections_wait(loop: str) -> None:
    async def main() -> None:
        limits = NetLimits(connections_max=2)
        async with serving(echo, limits=limits) as server:
            first, second, third = [await Peer.connect(server) for _ in range(3)]
            assert await responds(first)
            assert await responds(second)
            await third.send(frame(b"patient"))
            assert await responds(first)
            assert len(server.connections) == 2
            first.close()
            assert await third.read_frame() == b"patient"
            second.close()
            third.close()

    run(main(), loop)


@on_both_loops
def test_at_max_connections_a_broker_replaces_the_client_that_is_idle_longest(loop: str) -> None:
    async def main() -> None:
        clock = ManualClock()
        server = Server(
            echo,
            clock=clock,
            timers=LoopTimers(),
            limits=NetLimits(connections_max=3),
            protected_listener="BROKERS",
        )
        await server.start([Endpoint(name, "127.0.0.1", 0) for name in ("CLIENTS", "BROKERS")])
        clients, brokers = range(2)

        async def connect(endpoint_number: int) -> Peer:
            peer = await Peer.connect(server, endpoint_number=endpoint_number)
            await peer.send(frame(b"question"))
            return peer

        peers = [await connect(clients) for _ in range(3)]
        for peer in peers:
            assert await peer.read_frame() == b"question"
        for used in (peers[2], peers[0], peers[1]):
            clock.advance(1_000)
            server.tick()
            assert await responds(used)
        clock.advance(1_000)
        server.tick()
        server.tick()
        waiting = await connect(clients)
        first, second = [await connect(brokers) for _ in range(2)]
        assert await first.read_frame() == await second.read_frame() == b"question"
        assert await peers[2].ended() and await peers[0].ended()
        assert await responds(peers[1])
        assert len(server.connections) == 3
        third = await connect(brokers)
        assert await peers[1].ended()
        fourth = await connect(brokers)
        for peer in (third, fourth):
            assert await peer.read_frame() == b"question"
        first.close()
        second.close()
        assert await waiting.read_frame() == b"question"
        for peer in (third, fourth, waiting):
            peer.close()
        await server.stop()

    run(main(), loop)


@on_both_loops
def test_an_address_with_too_many_connections_is_rejected(loop: str, caplog: Any) -> None:
    async def main() -> None:
        limits = NetLimits(connections_max_per_ip=1)
        async with serving(echo, limits=limits) as server:
            first = await Peer.connect(server)
            assert await responds(first)
            second = await Peer.connect(server)
            assert await second.ended()
            assert await responds(first)
            first.close()
            await until(lambda: not server.connections)
            third = await Peer.connect(server)
            assert await responds(third)
            second.close()
            third.close()

    run(main(), loop)
    assert "rejected a connection from 127.0.0.1" in caplog.text


def test_an_address_may_have_a_limit_of_its_own() -> None:
    async def main() -> None:
        limits = NetLimits(
            connections_max_per_ip=0, connections_max_per_ip_overrides={"127.0.0.1": 1}
        )
        async with serving(echo, limits=limits) as server:
            peer = await Peer.connect(server)
            assert await responds(peer)
            peer.close()

    run(main())


# In a process of its own: the shared broker of the test process would meet the limit too, and
# would take its log directory offline.
DESCRIPTORS_RUN_OUT = """
    import asyncio, gc, logging, os, resource, socket, sys, time
    from odradek.net.listener import RETRY_S
    from tests.net.support import Peer, frame, iterations, run, serving, until

    messages = []

    class Messages(logging.Handler):
        def emit(self, record):
            messages.append(record.getMessage())

    logging.getLogger().addHandler(Messages(logging.INFO))
    logging.getLogger("odradek").setLevel(logging.INFO)

    def count(text):
        return sum(text in each for each in messages)

    async def main():
        async with serving(lambda _, view: [bytes(view)]) as server:
            peers = [socket.socket() for _ in range(3)]
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            gc.collect()  # objects that are freed later would make room for a descriptor
            lowest_free = os.dup(0)
            os.close(lowest_free)
            begun = time.monotonic()
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            endpoint = server.endpoints[0]
            for sock in peers:
                sock.connect((endpoint.host, endpoint.port))
                sock.setblocking(False)
            await until(lambda: count("cannot accept connections"))
            await iterations(50)
            tried = server._listeners[0]._failed
            # One attempt, and one after each pause, because the machine may have been busy.
            assert tried <= 1 + (time.monotonic() - begun) / RETRY_S, "it spins"
            assert not server.connections
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for sock in peers:
                peer = Peer(sock)
                await peer.send(frame(b"question"))
                assert await peer.read_frame() == b"question"
                sock.close()
            assert count("cannot accept connections") == 1
            await until(lambda: count("accepting connections again"))

    run(main(), sys.argv[1])
    (end,) = [each for each in messages if "accepting connections again" in each]
    assert int(end.split("after ")[1].split()[0]) >= 1
    print("accepted")
"""


@on_both_loops
def test_accepting_continues_after_the_descriptors_ran_out(loop: str) -> None:
    result = run_program(DESCRIPTORS_RUN_OUT, loop)
    assert result.stdout == "accepted\n", result.stderr


DESCRIPTORS_ARE_RESERVED = """
    import gc, os, resource, socket, sys
    from tests.net.support import Peer, frame, run, serving, until

    ACCEPTED = 5

    async def main():
        async with serving(lambda _, view: [bytes(view)]) as server:
            first = await Peer.connect(server)  # uvloop opens a descriptor of its own for it
            peers = [socket.socket() for _ in range(ACCEPTED * 2)]
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            gc.collect()
            lowest_free = os.dup(0)
            os.close(lowest_free)
            limit = lowest_free
            while limit - limit // 8 < lowest_free + ACCEPTED:
                limit += 1
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            endpoint = server.endpoints[0]
            for sock in peers:
                sock.connect((endpoint.host, endpoint.port))
                sock.setblocking(False)
            await until(lambda: server._listeners[0]._failed > 2)
            assert 1 < len(server.connections) <= ACCEPTED + 1
            files = [os.dup(0) for _ in range(limit // 8)]
            for each in files:
                os.close(each)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for peer in (first, Peer(peers[0])):
                await peer.send(frame(b"question"))
                assert await peer.read_frame() == b"question"
                peer.close()

    run(main(), sys.argv[1])
    print("reserved")
"""


@on_both_loops
def test_accepted_connections_leave_descriptors_for_files(loop: str) -> None:
    result = run_program(DESCRIPTORS_ARE_RESERVED, loop)
    assert result.stdout == "reserved\n", result.stderr


@on_both_loops
def test_idle_connections_are_closed_and_busy_ones_are_not(loop: str, caplog: Any) -> None:
    async def main() -> None:
        due: PendingResult[Chunks] = PendingResult()
        waits: list[bytes] = []

        def dispatch(_: Any, view: memoryview) -> Any:
            if view != b"wait":
                return [bytes(view)]
            waits.append(bytes(view))
            return due

        clock = ManualClock()
        limits = NetLimits(connections_max_idle_ms=60_000)
        async with serving(dispatch, limits=limits, clock=clock) as server:
            busy, idle, slow, waiting = [await Peer.connect(server) for _ in range(4)]
            await waiting.send(frame(b"wait"))
            assert await responds(idle)
            await slow.send(b"\0\0\0\x10ab")  # slowloris: a frame that never ends
            await until(lambda: len(server.connections) == 4)
            await until(lambda: waits and any(each._receive.kept for each in server.connections))
            for _ in range(3):
                assert await responds(busy)
                server.tick()
                clock.advance(29_000)
            server.tick()
            assert await idle.ended()
            assert await slow.ended()
            assert await responds(busy)
            due.complete([b"at last"])
            assert await waiting.read_frame() == b"at last"
            for peer in (busy, idle, slow, waiting):
                peer.close()

    with caplog.at_level(logging.INFO):
        run(main(), loop)
    logged = [each for each in caplog.records if "idle for 60000 ms" in each.message]
    assert sorted(each.levelno for each in logged) == [logging.INFO, logging.WARNING]


@on_both_loops
def test_a_peer_that_receives_no_responses_is_idle(loop: str) -> None:
    async def main() -> None:
        clock = ManualClock()
        limits = NetLimits(connections_max_idle_ms=60_000)
        response = [bytes(20_000_000)]
        async with serving(lambda _, view: response, limits=limits, clock=clock) as server:
            stuck = await Peer.connect(server, receive_buffer=8192)
            await stuck.send(frame(b"x") * 3)
            assert await stuck.read(1)
            connection = next(iter(server.connections))
            await iterations(50)
            while not connection.closed:
                server.tick()
                clock.advance(30_000)
                await iterations()
            stuck.close()

    run(main(), loop)


@on_both_loops
def test_a_connection_that_does_not_close_in_time_is_aborted(loop: str, caplog: Any) -> None:
    async def main() -> None:
        clock = ManualClock()
        response = [bytes(20_000_000)]
        async with serving(lambda _, view: response, clock=clock) as server:
            stuck = await Peer.connect(server, receive_buffer=8192)
            await stuck.send(frame(b"x"))
            assert await stuck.read(1)
            connection = next(iter(server.connections))
            connection.close("for a test")
            server.tick()
            assert not connection.closed
            clock.advance(5_000)
            server.tick()
            await until(lambda: connection.closed)
            stuck.close()

    run(main(), loop)
    assert "does not receive the last responses" in caplog.text


@on_both_loops
def test_stop_sends_pending_responses(loop: str) -> None:
    async def main() -> None:
        due: PendingResult[Chunks] = PendingResult()
        arrived = asyncio.Event()

        def dispatch(_: Any, view: memoryview) -> Any:
            arrived.set()
            return due

        server = Server(dispatch, clock=ManualClock(), timers=LoopTimers())
        # No other program listens there, even if the port is given to another program.
        await server.start([Endpoint("PLAINTEXT", "127.98.76.54", 0)])
        peer, idle = await Peer.connect(server), await Peer.connect(server)
        await peer.send(frame(b"question"))
        await arrived.wait()
        await until(lambda: len(server.connections) == 2)
        stopping = asyncio.ensure_future(server.stop(DEADLINE_S))
        assert await idle.ended()
        assert not stopping.done()
        due.complete([b"response"])
        assert await peer.read_frame() == b"response"
        assert await peer.ended()
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await Peer.connect(server)
        peer.close()
        idle.close()

    run(main(), loop)


@on_both_loops
def test_stop_aborts_connections_whose_responses_are_late(loop: str, caplog: Any) -> None:
    async def main() -> None:
        async with serving(echo) as warm:
            await one_connection(warm)
        base = open_descriptors()
        never: PendingResult[Chunks] = PendingResult()
        gone: list[str] = []
        arrived: list[bytes] = []

        @in_task
        async def forever() -> Result[Chunks]:
            try:
                await asyncio.Event().wait()
            finally:
                gone.append("cancelled")
            return Result([])

        def dispatch(connection: Any, view: memoryview) -> Any:
            arrived.append(bytes(view))
            connection.on_close.append(lambda: gone.append("closed"))
            return forever() if view == b"coroutine" else never

        server = Server(dispatch, clock=ManualClock(), timers=LoopTimers())
        await server.start([Endpoint("PLAINTEXT", "127.0.0.1", 0)])
        peers = [await Peer.connect(server) for _ in range(2)]
        await peers[0].send(frame(b"future"))
        await peers[1].send(frame(b"coroutine"))
        await until(lambda: len(arrived) == 2)
        await iterations(20)
        await server.stop(0.01)
        assert not server.connections
        assert gone == ["closed", "closed", "cancelled"]
        for peer in peers:
            assert await peer.ended()
            peer.close()
        await until_descriptors_at_most(base)

    run(main(), loop)
    assert "closed 2 connections" in caplog.text


@on_both_loops
def test_stop_does_not_wait_for_a_request_that_cannot_be_cancelled(loop: str, caplog: Any) -> None:
    async def main() -> None:
        endless: PendingResult[Chunks] = PendingResult(executed=False)
        arrived = asyncio.Event()

        def dispatch(_: Any, view: memoryview) -> Any:
            arrived.set()
            return endless

        server = Server(dispatch, clock=ManualClock(), timers=LoopTimers())
        await server.start([Endpoint("PLAINTEXT", "127.0.0.1", 0)])
        peer = await Peer.connect(server)
        await peer.send(frame(b"question"))
        await arrived.wait()
        await server.stop(0.01)
        assert not server.connections
        peer.close()

    run(main(), loop)
    assert "1 cancelled requests did not end within" in caplog.text


@on_both_loops
def test_a_holder_of_memory_that_stops_sending_is_closed(loop: str, caplog: Any) -> None:
    async def main() -> None:
        clock = ManualClock()
        limits = NetLimits(request_bytes_queued_max=1_000_000)
        async with serving(echo, limits=limits, clock=clock) as server:
            hoarder, honest, small = [await Peer.connect(server) for _ in range(3)]
            await hoarder.send(frame(bytes(900_000))[:200_000])
            await until(lambda: server.budget.used)
            request = frame(bytes(800_000))
            sending = asyncio.ensure_future(honest.send(request))
            await until(lambda: server.budget.waiting)
            assert await responds(small)
            server.tick()
            assert len(server.connections) == 3
            clock.advance(5_000)
            server.tick()
            assert await honest.read_frame() == bytes(800_000)
            await sending
            assert await hoarder.ended()
            for peer in (hoarder, honest, small):
                peer.close()

    run(main(), loop)
    assert "other connections wait for request memory" in caplog.text


@on_both_loops
def test_a_thousand_short_connections_leak_nothing(loop: str) -> None:
    async def main() -> None:
        async with serving(echo) as server:
            await one_connection(server)
            base = open_descriptors()
            for number in range(200):
                peers = [await Peer.connect(server) for _ in range(5)]
                for peer in peers:
                    assert await responds(peer)
                for peer in peers:
                    if number % 2:
                        peer.reset()
                    else:
                        peer.close()
            await until(lambda: not server.connections)
            await until_descriptors_at_most(base)

    run(main(), loop)


@on_both_loops
def test_requests_without_a_response_keep_the_order_of_the_others(loop: str) -> None:
    async def main() -> None:
        def dispatch(_: Any, view: memoryview) -> Any:
            return [] if view[0] % 3 == 0 else [bytes(view)]

        async with serving(dispatch) as server:
            peer = await Peer.connect(server)
            await peer.send(b"".join(frame(bytes([number])) for number in range(100)))
            for number in range(100):
                if number % 3:
                    assert await peer.read_frame() == bytes([number])
            peer.close()

    run(main(), loop)


def congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


async def congestion_controls() -> list[bytes]:
    """Return the names for the listening socket and for a socket that it accepted."""
    async with serving(lambda _, view: [bytes(view)]) as server:
        peer = await Peer.connect(server)
        await peer.send(frame(b"x"))
        await peer.read_frame()
        (connection,) = server.connections
        listening = server._listeners[0]._sock
        assert isinstance(listening, BoundSocket)
        assert isinstance(connection._socket, socket.socket)
        used = [listening._sock, connection._socket]
        controls = [congestion_control(each) for each in used]
        peer.close()
        return controls


needs_congestion_control = pytest.mark.skipif(
    not hasattr(socket, "TCP_CONGESTION"), reason="the system has no such option"
)


@needs_congestion_control
def test_peers_on_this_machine_were_never_paced() -> None:
    # The listening socket too: a socket that was accepted with BBR is paced forever.
    assert asyncio.run(congestion_controls()) == [b"reno", b"reno"]


@needs_congestion_control
def test_peers_on_other_machines_have_the_congestion_control_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "_is_this_machine", lambda *_: False)
    with socket.socket() as fresh:
        usual = congestion_control(fresh)
    assert asyncio.run(congestion_controls()) == [b"reno", usual]


@on_both_loops
@pytest.mark.parametrize("reset", [False, True])
def test_a_closed_connection_is_in_no_reference_cycle(loop: str, reset: bool) -> None:
    """A broker freezes its objects, so a cycle would stay for ever."""
    transports: list[weakref.ref[Any]] = []

    def dispatch(connection: Any, view: memoryview) -> list[bytes]:
        transports.append(weakref.ref(connection._transport))
        return echo(connection, view)

    async def main() -> None:
        async with serving(dispatch) as server:
            peer = await Peer.connect(server)
            assert await responds(peer)
            if reset:
                peer.reset()
            else:
                peer.close()
            await until(lambda: not server.connections)
            await iterations(20)
            assert [each() for each in transports] == [None]

    gc.disable()
    try:
        run(main(), loop)
    finally:
        gc.enable()
