"""A client of the wire protocol: one socket, and requests that no real client would send."""

from __future__ import annotations

import socket
from typing import Any

from odradek.client.blocking import BlockingClient
from odradek.client.connection import request_frame as request_bytes

__all__ = ["ConnectionClosed", "WireClient", "receive_exactly", "request_bytes"]

TIMEOUT_S = 120.0


class ConnectionClosed(Exception):
    """The broker closed the connection or did not respond in time. The cause has the details."""


class WireClient(BlockingClient):
    """A blocking client whose responses are untyped, for requests that no real client sends."""

    def __init__(
        self,
        bootstrap_servers: str,
        receive_buffer_bytes: int | None = None,
        *,
        read_ahead: bool = True,
    ) -> None:
        connected = socket.socket()
        if receive_buffer_bytes is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connected.settimeout(TIMEOUT_S)
        host, _, port = bootstrap_servers.rpartition(":")
        try:
            connected.connect((host, int(port)))
        except OSError:
            connected.close()
            raise
        super().__init__(connected, "wire", read_ahead=read_ahead)

    def call(self, request: Any, version: int, *, client_id: str = "wire") -> Any:  # type: ignore[override]
        """Return the response to `request`. Raise ConnectionClosed if there is none."""
        self.send(request, version, client_id=client_id)
        return self.receive()

    def receive(self) -> Any:
        """Return the next response."""
        try:
            return super().receive().message
        except OSError as error:
            raise ConnectionClosed from error

    def receive_frame(self) -> bytes:
        try:
            return super().receive_frame()
        except OSError as error:
            raise ConnectionClosed from error

    def read(self, size: int) -> bytes:
        """Return bytes from the socket itself."""
        return receive_exactly(self.socket, size)


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes from a socket. MSG_WAITALL does not wait if the socket has a timeout.

    Raises:
        ConnectionClosed: The other side closed the connection before.
    """
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionClosed
        data += chunk
    return bytes(data)
