"""Listening sockets: bound with clear error messages, accepting within the limits.

This module accepts connections itself, because the event loop's server cannot do two things. At
`max.connections` new connections have to wait in the system's accept queue. When descriptors run
out (EMFILE), accepting has to continue later, where uvloop's server closes the listening socket.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from odradek.environment.timers import Timer, Timers
from odradek.net.connection import plain_address
from odradek.net.limits import NetLimits
from odradek.net.session import PLAIN_SOCKET, SecurityProtocol, TransportKind

logger = logging.getLogger(__name__)

RETRY_S = 0.1
"""Pause of accepting when the system has no descriptor or memory for a connection, in seconds."""

_TCP_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)  # Linux
UNPACED = b"reno"
"""Congestion control for peers on this machine. It is always allowed, and it does not pace."""
CONGESTION_NAME_BYTES = 16
_LOOPBACK = ("127.", "::1")

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address to listen on. An empty `host` means all addresses, port 0 any free port."""

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    transport_kind: TransportKind = PLAIN_SOCKET

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect. `host` must be a bound address."""
        return self.host.startswith(_LOOPBACK)


class BindError(OSError):
    """The broker cannot listen on an endpoint. The message is one line for the user."""


async def bind(endpoint: Endpoint, limits: NetLimits) -> list[socket.socket]:
    """Return the listening sockets of `endpoint`, one for each address that its host stands for.

    Raises:
        BindError: The host is unknown, or a socket cannot be bound.
    """
    sockets: list[socket.socket] = []
    port = endpoint.port
    try:
        for family, host in await _addresses(endpoint):
            try:
                sockets.append(_listen(family, host, port, limits))
            except OSError as error:
                skip = error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
                if sockets and (skip or endpoint.port == 0):
                    continue
                raise _bind_error(endpoint, error) from error
            port = sockets[0].getsockname()[1]
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


async def _addresses(endpoint: Endpoint) -> list[tuple[int, str]]:
    """Return (family, address) pairs, IPv4 first. An empty host is one socket for both."""
    if not endpoint.host:
        if socket.has_dualstack_ipv6():
            return [(socket.AF_INET6, "::")]
        return [(socket.AF_INET, "0.0.0.0")]  # noqa: S104 - asked for by an empty host
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            endpoint.host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise BindError(
            f"cannot listen on {endpoint}: the host is unknown ({error}). Check the host name"
        ) from error
    pairs = dict.fromkeys((int(info[0]), str(info[4][0])) for info in found)
    return sorted(pairs, key=lambda pair: pair[0] != socket.AF_INET)


def _listen(family: int, host: str, port: int, limits: NetLimits) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        if limits.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        if limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        sock.setblocking(False)
        sock.bind((host, port))
        sock.listen(limits.backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_error(endpoint: Endpoint, error: OSError) -> BindError:
    reasons = {
        errno.EADDRINUSE: "the port is in use by another program",
        errno.EACCES: "this user may not use the port",
        errno.EADDRNOTAVAIL: "this machine does not have the address",
    }
    reason = reasons.get(error.errno or 0) or os.strerror(error.errno or 0)
    return BindError(f"cannot listen on {endpoint}: {reason}")


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


def _is_this_machine(sock: socket.socket, peer: Any) -> bool:
    """Return whether the peer of an accepted socket is a program on this machine."""
    host, own = plain_address(peer)[0], plain_address(sock.getsockname())[0]
    return host.startswith(_LOOPBACK) or host == own


class Listener:
    """A listening socket that accepts. Owned by its server, which pauses it.

    Between programs on one machine there is no network to protect from congestion, and each packet
    that BBR's pacing holds back costs a timer and an interrupt. A socket that has once used BBR is
    paced forever, even if its setting changes later. So the other congestion control is set on the
    listening socket, from which the accepted sockets inherit it. For peers on other machines the
    accepted socket is set back to the system's default.

    `_failed` counts the attempts that failed for lack of descriptors or memory since the accept
    queue was last empty. The first of them is logged, and so is the end of the lack.
    """

    __slots__ = (
        "_accept",
        "_accepting",
        "_congestion",
        "_failed",
        "_loop",
        "_resting",
        "_sock",
        "_timers",
        "endpoint",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        sock: socket.socket,
        accept: Callable[[Endpoint, socket.socket], bool],
        timers: Timers,
    ) -> None:
        """Listen on a bound socket.

        Args:
            endpoint: The endpoint that `sock` was bound for.
            sock: The listening socket.
            accept: Takes over an accepted socket. Returns whether there is room for another one.
            timers: Call `resume` after a lack of descriptors.
        """
        host, port = sock.getsockname()[:2]
        self.endpoint = replace(endpoint, host=host, port=port)
        self._sock = sock
        self._accept = accept
        self._timers = timers
        self._loop = asyncio.get_running_loop()
        self._accepting = False
        self._failed = 0
        self._resting: Timer | None = None
        self._congestion = _exchange_congestion(sock, UNPACED)

    def resume(self) -> None:
        """Accept connections from now on."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if not self._accepting and self._sock.fileno() >= 0:
            self._accepting = True
            self._loop.add_reader(self._sock, self._on_readable)

    def pause(self) -> None:
        """Leave new connections in the system's accept queue."""
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._sock)

    def close(self) -> None:
        """Stop listening and close the socket."""
        self.pause()
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        self._sock.close()

    def _on_readable(self) -> None:
        while self._accepting:
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                self._report_end()
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._rest(error)
                    return
                logger.debug("a connection ended before it was accepted: %s", error)
                continue
            if self._congestion and not _is_this_machine(sock, address):
                _exchange_congestion(sock, self._congestion)
            if not self._accept(self.endpoint, sock):
                self.pause()

    def _rest(self, error: OSError) -> None:
        """Try again later: the system has no descriptor or memory for a connection."""
        if not self._failed:
            logger.error(
                "%s: cannot accept connections: %s. Trying again every %g s. If the process "
                "has too many open files, raise the limit (ulimit -n)",
                self.endpoint,
                error,
                RETRY_S,
            )
        self._failed += 1
        self.pause()
        self._resting = self._timers.call_later(RETRY_S, self.resume)

    def _report_end(self) -> None:
        """Log that connections are accepted again, when the accept queue is empty."""
        if self._failed:
            failed, self._failed = self._failed, 0
            logger.warning(
                "%s: accepting connections again, after %d failed attempts",
                self.endpoint,
                failed,
            )
