"""The session of a client's connection, and the kind of its transport."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class SecurityProtocol(StrEnum):
    """How clients of a listener encrypt and log in (``listener.security.protocol.map``)."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class Principal(NamedTuple):
    """The identity of a client, as Kafka writes it: ``User:alice``."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The principal of a client that has not logged in."""


@dataclass(frozen=True, slots=True)
class Session:
    """The facts that handlers and quotas know of the client of a connection.

    A session does not change. A log-in gives the connection another one, and a request keeps the
    session under which it was executed.

    Attributes:
        client_address: IP address of the client.
        local_address: Host and port at which the connection arrived.
    """

    listener_name: str
    security_protocol: SecurityProtocol
    principal: Principal
    client_address: str
    local_address: tuple[str, int]


class TransportKind(NamedTuple):
    """How the bytes of a connection reach its socket.

    Attributes:
        sendfile: File regions are sent with `os.sendfile` on the socket, past the transport.
        write_buffer_high: Bytes in the transport above which it pauses its protocol.
    """

    sendfile: bool
    write_buffer_high: int


PLAIN_SOCKET = TransportKind(sendfile=True, write_buffer_high=0)
"""With 0, paused means that the transport holds bytes. The order of what is written to the
transport and of what `os.sendfile` writes past it depends on that.
"""

PLAIN_SOCKET_WITHOUT_SENDFILE = TransportKind(sendfile=False, write_buffer_high=0)
"""For systems that have no `os.sendfile`, and for tests of that."""

TLS = TransportKind(sendfile=False, write_buffer_high=1)
"""`os.sendfile` would write plaintext past the encryption. With 0 a TLS transport of asyncio pauses
its protocol at each write, also when the socket took all bytes, and may never resume it.
"""
