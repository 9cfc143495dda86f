"""The network of the operating system, as brokers use it among themselves."""

from __future__ import annotations

import asyncio
import resource
import socket
from typing import Any

import pytest

from odradek.environment.network import ListenOptions, Network
from odradek.environment.sockets import SocketNetwork
from tests.net.support import on_both_loops, run, until

OPTIONS = ListenOptions(backlog=5)


class Peer(asyncio.Protocol):
    """Collects what one end of a connection receives."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.data = b""
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def option(peer: Peer, level: int, name: int) -> int:
    return int(peer.transport.get_extra_info("socket").getsockopt(level, name))


@on_both_loops
def test_a_broker_connects_to_a_listening_socket(loop: str) -> None:
    async def main() -> None:
        network: Network = SocketNetwork()
        (listening,) = await network.listen("127.0.0.1", 0, OPTIONS)
        accepted: list[Peer] = []
        attaching: list[asyncio.Task[None]] = []

        def accept() -> None:
            peer = Peer()
            accepted.append(peer)
            attach = network.attach(listening.accept(), peer)
            attaching.append(asyncio.ensure_future(attach))

        with pytest.raises(BlockingIOError):
            listening.accept()
        listening.watch(accept)
        transport, near = await network.connect(*listening.address, Peer)
        await until(lambda: accepted and accepted[0].transport)
        for peer in (near, accepted[0]):
            assert option(peer, socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert option(peer, socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        transport.write(b"request")
        accepted[0].transport.write(b"response")
        await until(lambda: near.data == b"response" and accepted[0].data == b"request")
        listening.unwatch()
        listening.close()
        assert listening.closed
        transport.close()
        await until(lambda: near.is_lost and accepted[0].is_lost)
        with pytest.raises(OSError):
            await network.connect(*listening.address, Peer)

    run(main(), loop)


@on_both_loops
def test_a_connection_waits_in_the_queue_until_the_socket_is_watched(loop: str) -> None:
    async def main() -> None:
        network = SocketNetwork()
        (listening,) = await network.listen("127.0.0.1", 0, OPTIONS)
        transport, _ = await network.connect(*listening.address, Peer)
        waiting = 0

        def on_connection() -> None:
            nonlocal waiting
            waiting += 1

        listening.watch(on_connection)
        await until(lambda: waiting >= 2)  # again as long as the connection is not accepted
        listening.accept().close()
        listening.unwatch()
        transport.close()
        listening.close()

    run(main(), loop)


@pytest.mark.parametrize(("is_protected", "accepts"), [(False, False), (True, True)])
def test_protected_listener_may_use_half_of_the_reserved_descriptors(
    monkeypatch: pytest.MonkeyPatch, is_protected: bool, accepts: bool
) -> None:
    """Clients that use up the other descriptors do not keep the brokers from replicating."""

    async def main() -> None:
        (listening,) = await SocketNetwork().listen(
            "127.0.0.1", 0, OPTIONS._replace(is_protected=is_protected)
        )
        with socket.create_connection(listening.address):
            with socket.socket() as probe:
                free = probe.fileno()
            # The reserve is an eighth of the limit: it begins below the next descriptor.
            limit = free * 8 // 7
            limits = (limit, resource.RLIM_INFINITY)
            monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
            if accepts:
                listening.accept().close()
            else:
                with pytest.raises(OSError, match="reserved for log files"):
                    listening.accept()
        listening.close()

    asyncio.run(main())
