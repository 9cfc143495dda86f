"""The network as a protocol: listening, accepted connections and outgoing connections.

The data of a connection passes through an `asyncio` transport. A response that contains file
regions also uses the connection's socket directly: see `StreamSocket`. The real implementation is
`odradek.environment.sockets`. All methods are called on the event loop of the broker.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from odradek.environment.files import Buffer

P = TypeVar("P", bound=asyncio.BaseProtocol)

LOOPBACK = ("127.", "::1")
"""Prefixes of the addresses that only programs on this machine reach."""


class ListenOptions(NamedTuple):
    """Options of listening sockets, which the accepted sockets inherit.

    Attributes:
        backlog: Length of the queue of connections that are not accepted yet.
        send_buffer_bytes: Size of the send buffer. 0 or less leaves it to the system.
        receive_buffer_bytes: Size of the receive buffer. 0 or less leaves it to the system.
        is_protected: Whether the connections are accepted when other listeners have used up the
            descriptors for connections. The brokers of a cluster use such a listener.
    """

    backlog: int
    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0
    is_protected: bool = False


class StreamSocket(Protocol):
    """The socket of an accepted connection. `socket.socket` is the real one.

    `odradek.net.sender.Sender` uses it beside the transport, and only while the transport holds no
    bytes. It sends the bytes before a region by `send` with MSG_MORE, and the region by
    `Files.sendfile` with `fileno()`. `setsockopt` sets TCP_CORK, and is called only if `family` is
    AF_INET or AF_INET6. A simulated network returns another family. Its `sendfile` keeps file,
    position and length, and reads the bytes when it delivers them.
    """

    @property
    def family(self) -> int:
        """The address family, such as `socket.AF_INET`."""

    def fileno(self) -> int:
        """Return the descriptor that `Files.sendfile` accepts. -1: the socket is closed."""

    def getpeername(self) -> Any:
        """Return the peer's (host, port, ...).

        Raises:
            OSError: The peer has disconnected.
        """

    def send(self, data: Buffer, flags: int = ..., /) -> int:
        """Send bytes and return the number that the socket accepted.

        Raises:
            BlockingIOError: The socket is full.
            OSError: The connection has ended. The transport reports that to its protocol.
        """

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...

    def close(self) -> None:
        """Close a socket that was not passed to `Network.attach`."""


class ListeningSocket(Protocol):
    """A bound socket with a queue of connections that wait to be accepted."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port that were bound."""

    @property
    def closed(self) -> bool: ...

    def watch(self, on_connection: Callable[[], None]) -> None:
        """Call `on_connection` from the event loop whenever a connection waits, until `unwatch`.

        A connection that waits already counts, too. `on_connection` is called again in a later
        iteration of the loop if it leaves a connection in the queue.
        """

    def unwatch(self) -> None:
        """Leave connections in the queue."""

    def accept(self) -> StreamSocket:
        """Return the connection that waits longest.

        Raises:
            BlockingIOError: No connection waits.
            OSError: The connection has ended, or the process has no descriptor for it (EMFILE).
                A real network closes it if only reserved descriptors are left.
        """

    def close(self) -> None:
        """Stop listening. Connections in the queue are reset."""


class Network(Protocol):
    """The network of one broker."""

    @property
    def host_name(self) -> str:
        """The name of this machine, by which other machines may reach it."""

    async def listen(self, host: str, port: int, options: ListenOptions) -> list[ListeningSocket]:
        """Bind one socket for each address of `host`, all on one port.

        Args:
            host: A name or an address. Empty: all addresses of the machine.
            port: 0 selects a free port.
            options: Options of the sockets.

        Raises:
            UnknownHostError: `host` has no address.
            OSError: A socket cannot be bound. None is bound then.
        """

    async def attach(self, sock: StreamSocket, protocol: asyncio.BaseProtocol) -> None:
        """Create the transport of an accepted socket, and call `protocol.connection_made`.

        The transport has the methods of `asyncio.Transport`. `protocol` may be an
        `asyncio.BufferedProtocol`. The transport closes the socket at its end.

        Raises:
            OSError: The connection has ended. The caller closes the socket.
        """

    async def connect(
        self, host: str, port: int, protocol_factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        """Open a connection to another broker. The caller limits the time.

        Raises:
            OSError: The host is unknown, unreachable, or refuses the connection.
        """


class UnknownHostError(OSError):
    """The host name has no address. The message comes from the resolver."""


def plain_address(address: Any) -> tuple[str, int]:
    """Return host and port of a socket name. An IPv4 address mapped into IPv6 becomes IPv4."""
    if not isinstance(address, tuple) or len(address) < 2:
        return (str(address), 0)
    host = address[0]
    if host.startswith("::ffff:"):
        mapped = ipaddress.IPv6Address(host).ipv4_mapped
        host = str(mapped) if mapped else host
    return (host, address[1])
