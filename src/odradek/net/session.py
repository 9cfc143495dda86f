"""The session of a client's connection, and the kind of its transport."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class SecurityProtocol(StrEnum):
    """How clients of a listener encrypt and authenticate (``listener.security.protocol.map``)."""

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
"""The principal of a client that has not authenticated."""


class Session(NamedTuple):
    """The facts about the client of a connection that handlers and quotas use.

    A session does not change. An authentication gives the connection another session, and a
    request keeps the session under which it was executed.

    Attributes:
        client_address: IP address of the client.
        local_address: Host and port that the client connected to.
        is_forwarded: The client is connected to another broker, which forwards its requests.
    """

    listener_name: str
    security_protocol: SecurityProtocol
    principal: Principal
    client_address: str
    local_address: tuple[str, int]
    is_forwarded: bool = False


class TransportKind(NamedTuple):
    """How the bytes of a connection reach its socket.

    Attributes:
        sendfile: File regions are sent with `os.sendfile` on the socket, bypassing the transport.
        write_buffer_high: Bytes in the transport above which it pauses its protocol.
    """

    sendfile: bool
    write_buffer_high: int


PLAIN_SOCKET = TransportKind(sendfile=True, write_buffer_high=0)
"""With the limit 0 a transport is paused exactly while it holds bytes. The order of the bytes that
are written to the transport and the bytes that `os.sendfile` writes to the socket depends on that.
"""

PLAIN_SOCKET_WITHOUT_SENDFILE = TransportKind(sendfile=False, write_buffer_high=0)
"""For systems that have no `os.sendfile`, and for tests that emulate one."""

TLS = TransportKind(sendfile=False, write_buffer_high=1)
"""`os.sendfile` would bypass the encryption and send plaintext. With the limit 0 a TLS transport of
asyncio pauses its protocol at each write, even if the socket took all bytes, and may never resume.
"""
