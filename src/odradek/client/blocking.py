"""A client on a blocking socket, for the command line, the tests and the conformance programs."""

from __future__ import annotations

import socket
from typing import Self, TypeVar

from odradek.client.connection import ClientConnection, ConnectionClosed, Response
from odradek.protocol.codec import Message
from odradek.protocol.framing import pack_size
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse

READ_AHEAD_BYTES = 64 * 1024
"""Most bytes that one read of the socket returns, except for a larger frame."""

R = TypeVar("R", bound=Message)


class BlockingClient:
    """Requests and responses over one socket. Each call blocks.

    Every call may raise OSError: `TimeoutError` when a response does not arrive in time,
    `ConnectionClosed` and `InvalidResponse`.

    Args:
        connected: The socket, which the client closes. Its timeout limits each read and write.
        client_id: Client id of all requests.
        read_ahead: With False the client reads no byte beyond the next frame, so that the caller
            may read the rest from `socket` itself.
    """

    def __init__(
        self, connected: socket.socket, client_id: str = "", *, read_ahead: bool = True
    ) -> None:
        self.connection = ClientConnection(client_id)
        self.socket = connected
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ahead = READ_AHEAD_BYTES if read_ahead else 0

    @classmethod
    def connect(
        cls,
        address: tuple[str, int],
        timeout_s: float,
        client_id: str = "",
        *,
        read_ahead: bool = True,
    ) -> Self:
        """Connect to a host and port. `timeout_s` also limits each read and write."""
        connected = socket.create_connection(address, timeout_s)
        return cls(connected, client_id, read_ahead=read_ahead)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def negotiate(self, software: str = "odradek", software_version: str = "0") -> None:
        """Request the broker's versions. Later requests without a version use them."""
        self.socket.sendall(self.connection.api_versions(software, software_version))
        response = self.receive().message
        if not isinstance(response, ApiVersionsResponse):
            raise TypeError(f"{type(response).__name__} instead of ApiVersionsResponse")
        self.connection.learn_versions(response)

    def call(self, request: Message, response: type[R], version: int | None = None) -> R:
        """Send a request and return its response, an instance of `response`."""
        self.send(request, version)
        found = self.receive().message
        if not isinstance(found, response):
            raise TypeError(f"{type(found).__name__} instead of {response.__name__}")
        return found

    def send(
        self, request: Message, version: int | None = None, *, client_id: str | None = None
    ) -> int:
        """Send a request without waiting for its response. Return its correlation id."""
        self.socket.sendall(self.connection.send(request, version, client_id=client_id))
        return self.connection.last_correlation_id

    def receive(self) -> Response:
        """Return the response to the oldest request in flight."""
        while (response := self.connection.next_response()) is None:
            self._read()
        return response

    def send_frame(self, frame: bytes) -> None:
        """Send arbitrary bytes with their size in front."""
        self.socket.sendall(pack_size(len(frame)) + frame)

    def receive_frame(self) -> bytes:
        """Return the next frame as bytes, without its size."""
        while (frame := self.connection.next_frame()) is None:
            self._read()
        return frame

    def _read(self) -> None:
        chunk = self.socket.recv(max(self.connection.bytes_needed, self._ahead))
        if not chunk:
            self.connection.receive_eof()
            raise ConnectionClosed("the broker closed the connection")
        self.connection.receive_data(chunk)
