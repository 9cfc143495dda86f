"""The sockets of the operating system, as the network of a broker.

This module accepts connections itself, because the event loop's server cannot do two things. At
`max.connections` new connections have to wait in the system's accept queue. When descriptors run
out (EMFILE), accepting has to continue later, where uvloop's server closes the listening socket.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from odradek.environment.network import (
    LOOPBACK,
    ListeningSocket,
    ListenOptions,
    StreamSocket,
    UnknownHostError,
    plain_address,
)

P = TypeVar("P", bound=asyncio.BaseProtocol)
logger = logging.getLogger(__name__)

_TCP_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)  # Linux
UNPACED = b"reno"
"""Congestion control for peers on this machine. It is always allowed, and it does not pace."""
CONGESTION_NAME_BYTES = 16
RESERVED_DESCRIPTORS_MAX = 128
RESERVED_DESCRIPTORS_SHARE = 8
"""Descriptors that no accepted connection uses: one of so many, at most the maximum. Otherwise a
client that leaks connections would leave none for the files of logs.
"""


class SocketNetwork:
    """TCP on the running event loop."""

    __slots__ = ()

    @property
    def host_name(self) -> str:
        return socket.gethostname()

    async def listen(self, host: str, port: int, options: ListenOptions) -> list[ListeningSocket]:
        """Bind one socket for each address of `host`, all on one port.

        An address that the machine lacks is skipped if another one could be bound. So is one whose
        free port is taken for another address.
        """
        bound: list[BoundSocket] = []
        try:
            for family, address in await _addresses(host):
                try:
                    port_here = bound[0].address[1] if bound else port
                    sock = _listen(family, address, port_here, options)
                    bound.append(BoundSocket(sock, options.is_protected))
                except OSError as error:
                    skip = error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
                    if not (bound and (skip or port == 0)):
                        raise
        except BaseException:
            for each in bound:
                each.close()
            raise
        return list(bound)

    async def attach(self, sock: StreamSocket, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(sock, socket.socket)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, sock)

    async def connect(
        self, host: str, port: int, protocol_factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(protocol_factory, host, port)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return transport, protocol


class BoundSocket:
    """A listening socket.

    Between programs on one machine there is no network to protect from congestion, and each packet
    that BBR's pacing holds back costs a timer and an interrupt. A socket that has once used BBR is
    paced forever, even if its setting changes later. So the other congestion control is set on the
    listening socket, from which the accepted sockets inherit it. For peers on other machines the
    accepted socket is set back to the system's default.
    """

    __slots__ = ("_congestion", "_is_protected", "_loop", "_sock", "address")

    def __init__(self, sock: socket.socket, is_protected: bool) -> None:
        self._sock = sock
        self._is_protected = is_protected
        self._loop = asyncio.get_running_loop()
        self.address: tuple[str, int] = sock.getsockname()[:2]
        self._congestion = _exchange_congestion(sock, UNPACED)

    @property
    def closed(self) -> bool:
        return self._sock.fileno() < 0

    def watch(self, on_connection: Callable[[], None]) -> None:
        self._loop.add_reader(self._sock, on_connection)

    def unwatch(self) -> None:
        self._loop.remove_reader(self._sock)

    def accept(self) -> StreamSocket:
        try:
            sock, peer = self._sock.accept()
        except InterruptedError as error:
            raise BlockingIOError(errno.EAGAIN, str(error)) from error
        if sock.fileno() >= _connection_descriptors(self._is_protected):
            sock.close()
            raise OSError(errno.EMFILE, "the other file descriptors are reserved for log files")
        if self._congestion and not _is_this_machine(sock, peer):
            _exchange_congestion(sock, self._congestion)
        return sock

    def close(self) -> None:
        self._sock.close()


async def _addresses(host: str) -> list[tuple[int, str]]:
    """Return (family, address) pairs, IPv4 first. An empty host is one socket for both."""
    if not host:
        if socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, "::")]
        return [(socket.AF_INET, "0.0.0.0")]  # noqa: S104 - asked for by an empty host
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UnknownHostError(*error.args) from error
    pairs = dict.fromkeys((int(info[0]), str(info[4][0])) for info in found)
    return sorted(pairs, key=lambda pair: pair[0] != socket.AF_INET)


def _listen(family: int, host: str, port: int, options: ListenOptions) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        if options.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
        if options.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
        sock.setblocking(False)
        sock.bind((host, port))
        sock.listen(options.backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def _exchange_congestion(sock: socket.socket, name: bytes) -> bytes | None:
    """Set the congestion control of `sock`. Return the previous one, or None on failure."""
    if _TCP_CONGESTION is None:
        return None
    try:
        before = sock.getsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, CONGESTION_NAME_BYTES)
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, name)
    except OSError as error:
        logger.debug("the congestion control of a socket cannot be changed: %s", error)
        return None
    return before.rstrip(b"\0")


def _connection_descriptors(is_protected: bool) -> int:
    """Return the number below which the descriptors of accepted connections are.

    Connections of a protected listener may use half of the reserve. Clients that use all other
    descriptors then do not keep the brokers of a cluster from replicating.

    The system uses the lowest free number, so the descriptors above are left for log files. The
    limit of the process may be changed while it runs.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    reserved = min(RESERVED_DESCRIPTORS_MAX, soft // RESERVED_DESCRIPTORS_SHARE)
    return soft - (reserved // 2 if is_protected else reserved)


def _is_this_machine(sock: socket.socket, peer: Any) -> bool:
    """Return whether the peer of an accepted socket is a program on this machine."""
    host, own = plain_address(peer)[0], plain_address(sock.getsockname())[0]
    return host.startswith(LOOPBACK) or host == own
