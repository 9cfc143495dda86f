"""A client of the bare protocol: one socket, requests as messages no real client would send."""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

from odradek.protocol.codec import decode, encode
from odradek.protocol.headers import RESPONSE_FLEXIBLE_FROM, request_header
from odradek.protocol.registry import response_class

TIMEOUT_S = 120.0


class ConnectionClosed(Exception):
    """The broker closed the connection, or never answered."""


class WireClient:
    """Sends and receives whole requests and responses over one blocking socket."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._sent: dict[int, tuple[type[Any], int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def call(self, request: Any, version: int, *, client_id: str = "wire") -> Any:
        """The response to `request`; ConnectionClosed when there is none."""
        self.send(request, version, client_id=client_id)
        return self.receive()

    def send(self, request: Any, version: int, *, client_id: str = "wire") -> int:
        """Sends without waiting; the correlation id."""
        self._correlation_id += 1
        self._sent[self._correlation_id] = (response_class(request.API_KEY), version)
        self.send_frame(request_bytes(request, version, self._correlation_id, client_id))
        return self._correlation_id

    def send_frame(self, data: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(data)) + data)

    def receive(self) -> Any:
        """The next response."""
        data = self.receive_frame()
        (correlation_id,) = struct.unpack_from(">i", data)
        cls, version = self._sent.pop(correlation_id)
        flexible = version >= RESPONSE_FLEXIBLE_FROM[cls.API_KEY]
        return decode(cls, version, data, 5 if flexible else 4)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < size:
            try:
                chunk = self.socket.recv(size - len(chunks))
            except OSError as error:
                raise ConnectionClosed from error
            if not chunk:
                raise ConnectionClosed
            chunks += chunk
        return bytes(chunks)


def request_bytes(
    request: Any, version: int, correlation_id: int = 1, client_id: str = ""
) -> bytes:
    """A request's frame without the size in front."""
    header = request_header(request.API_KEY, version, correlation_id, client_id)
    return header + encode(request, version)
