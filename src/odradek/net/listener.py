"""Endpoints: bound with clear error messages, accepting within the limits.

At `max.connections` new connections wait in the system's accept queue. When descriptors run out
(EMFILE), accepting continues later.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from typing import NamedTuple

from odradek.environment.network import (
    LOOPBACK,
    ListeningSocket,
    ListenOptions,
    Network,
    StreamSocket,
    UnknownHostError,
)
from odradek.environment.timers import Timer, Timers
from odradek.net.limits import NetLimits
from odradek.net.session import PLAIN_SOCKET, SecurityProtocol, TransportKind

logger = logging.getLogger(__name__)

RETRY_S = 0.1
"""Pause of accepting when the system has no descriptor or memory for a connection, in seconds."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Endpoint(NamedTuple):
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
        return self.host.startswith(LOOPBACK)


class BindError(OSError):
    """The broker cannot listen on an endpoint. The message is one line for the user."""


async def bind(
    endpoint: Endpoint, network: Network, limits: NetLimits, *, is_protected: bool = False
) -> list[ListeningSocket]:
    """Return the listening sockets of `endpoint`, one for each address that its host stands for.

    Args:
        endpoint: Name, host and port.
        network: The network.
        limits: The sizes of the backlog and of the buffers.
        is_protected: See `ListenOptions`.

    Raises:
        BindError: The host is unknown, or a socket cannot be bound.
    """
    options = ListenOptions(
        limits.backlog, limits.send_buffer_bytes, limits.receive_buffer_bytes, is_protected
    )
    try:
        return await network.listen(endpoint.host, endpoint.port, options)
    except UnknownHostError as error:
        raise BindError(
            f"cannot listen on {endpoint}: the host is unknown ({error}). Check the host name"
        ) from error
    except OSError as error:
        raise _bind_error(endpoint, error) from error


def _bind_error(endpoint: Endpoint, error: OSError) -> BindError:
    reasons = {
        errno.EADDRINUSE: "the port is in use by another program. Stop it, or use another port",
        errno.EACCES: "this user may not use the port. Use a port above 1023",
        errno.EADDRNOTAVAIL: "this machine does not have the address. Listen on one of its own",
    }
    reason = reasons.get(error.errno or 0) or os.strerror(error.errno or 0)
    return BindError(f"cannot listen on {endpoint}: {reason}")


class Listener:
    """A listening socket that accepts. Owned by its server, which pauses it.

    `_failed` counts the attempts that failed for lack of descriptors or memory since the accept
    queue was last empty. The first of them is logged, and so is the end of the lack.
    """

    __slots__ = (
        "_accept",
        "_accepting",
        "_failed",
        "_resting",
        "_sock",
        "_timers",
        "endpoint",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        sock: ListeningSocket,
        accept: Callable[[Endpoint, StreamSocket], None],
        timers: Timers,
    ) -> None:
        """Listen on a bound socket.

        Args:
            endpoint: The endpoint that `sock` was bound for.
            sock: The listening socket.
            accept: Takes over an accepted socket. It may pause this listener.
            timers: Call `resume` after a lack of descriptors.
        """
        host, port = sock.address
        self.endpoint = endpoint._replace(host=host, port=port)
        self._sock = sock
        self._accept = accept
        self._timers = timers
        self._accepting = False
        self._failed = 0
        self._resting: Timer | None = None

    def resume(self) -> None:
        """Accept connections from now on."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if not self._accepting and not self._sock.closed:
            self._accepting = True
            self._sock.watch(self._accept_waiting)

    def pause(self) -> None:
        """Leave new connections in the system's accept queue."""
        if self._accepting:
            self._accepting = False
            self._sock.unwatch()

    def close(self) -> None:
        """Stop listening and close the socket."""
        self.pause()
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        self._sock.close()

    def _accept_waiting(self) -> None:
        while self._accepting:
            try:
                sock = self._sock.accept()
            except BlockingIOError:
                self._report_end()
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._rest(error)
                    return
                logger.debug("a connection ended before it was accepted: %s", error)
                continue
            self._accept(self.endpoint, sock)

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
