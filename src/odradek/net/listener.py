"""Listening sockets: bound with errors that a user understands, accepting within the limits.

Accepting is done here and not by the loop's server: at `max.connections` new connections have to
wait in the system's queue, and when descriptors run out (EMFILE) accepting has to go on later;
uvloop's server closes the listening socket then.
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
"""How long accepting rests when the system has no descriptor or memory for a connection."""

_TCP_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)  # Linux
UNPACED = b"reno"
"""Congestion control for peers on this machine: always allowed, and it does not pace."""
CONGESTION_NAME_BYTES = 16
_LOOPBACK = ("127.", "::1")

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to listen: `host` empty for all addresses, `port` 0 for any free one."""

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
        """Whether only programs on this machine can connect; `host` is a bound address then."""
        return self.host.startswith(_LOOPBACK)


class BindError(OSError):
    """An endpoint that cannot be listened on; the message is one line for the user."""


async def bind(endpoint: Endpoint, limits: NetLimits) -> list[socket.socket]:
    """The listening sockets of `endpoint`: one for each of the addresses its host stands for."""
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
    """(family, address) pairs, IPv4 first; all addresses is one socket for both families."""
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
        raise BindError(f"cannot listen on {endpoint}: the host is unknown ({error})") from error
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
    """Sets the congestion control of `sock`; the one before, None where that cannot be had."""
    if _TCP_CONGESTION is None:
        return None
    try:
        before = sock.getsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, CONGESTION_NAME_BYTES)
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, name)
    except OSError as error:
        logger.debug("the congestion control stays as it is: %s", error)
        return None
    return before.rstrip(b"\0")


def _is_this_machine(sock: socket.socket, peer: Any) -> bool:
    """Whether the peer of an accepted socket is a program on this machine."""
    host, own = plain_address(peer)[0], plain_address(sock.getsockname())[0]
    return host.startswith(_LOOPBACK) or host == own


class Listener:
    """Accepts on one listening socket. Owned by its server, which says when to pause.

    With peers on this machine there is no network to spare, and each packet that BBR's pacing holds
    back costs a timer and an interrupt. A socket that was BBR's once
    is paced for ever, whatever it is set to later; so the listening socket, which the accepted ones
    take after, is set, and peers elsewhere are set back to what the system uses.

    `_failed` counts the attempts that failed for want of descriptors or memory since the last time
    at which no connection waited. The first of them is logged, and the end.
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
        """`accept` takes over an accepted socket, and says whether there is room for another."""
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
        """Accepts from now on."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if not self._accepting and self._sock.fileno() >= 0:
            self._accepting = True
            self._loop.add_reader(self._sock, self._on_readable)

    def pause(self) -> None:
        """Leaves new connections in the system's queue."""
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._sock)

    def close(self) -> None:
        """Listens no more."""
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
                logger.debug("a connection was gone before it was accepted: %s", error)
                continue
            if self._congestion and not _is_this_machine(sock, address):
                _exchange_congestion(sock, self._congestion)
            if not self._accept(self.endpoint, sock):
                self.pause()

    def _rest(self, error: OSError) -> None:
        """Try again later: the system has no descriptor or memory for a connection."""
        if not self._failed:
            logger.error(
                "%s: no connection can be accepted at present: %s. It is tried again every %g s",
                self.endpoint,
                error,
                RETRY_S,
            )
        self._failed += 1
        self.pause()
        self._resting = self._timers.call_later(RETRY_S, self.resume)

    def _report_end(self) -> None:
        """No connection waits to be accepted."""
        if self._failed:
            failed, self._failed = self._failed, 0
            logger.warning(
                "%s: connections are accepted again, after %d attempts that failed",
                self.endpoint,
                failed,
            )
