"""Requests that no client library offers: one socket, one request after another.

The encoding is the broker's own (`odradek.protocol`), so what may be asked is what it serves. For
the few admin calls that librdkafka has not; everything else goes through it.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

from odradek.cli.client import (
    REQUEST_TIMEOUT_S,
    server_address,
    unreachable,
    wait_until_listening,
)
from odradek.cli.output import CommandError
from odradek.errors import ErrorCode
from odradek.protocol.codec import decode, encode
from odradek.protocol.headers import RESPONSE_FLEXIBLE_FROM, request_header
from odradek.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from odradek.protocol.registry import response_class

CLIENT_ID = "odradek-cli"
RESPONSE_BYTES_MAX = 100 * 1024 * 1024
TRANSACTION_COORDINATOR = 1


class WireClient:
    """A connection to one broker; every failure is a `CommandError`."""

    def __init__(self, bootstrap_server: str) -> None:
        self._server = bootstrap_server
        self._socket = _connected(bootstrap_server)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, request: Any, version: int) -> Any:
        """The response to `request`."""
        self._correlation_id += 1
        header = request_header(request.API_KEY, version, self._correlation_id, CLIENT_ID)
        data = header + encode(request, version)
        try:
            self._socket.sendall(struct.pack(">i", len(data)) + data)
            (size,) = struct.unpack(">i", self._read(4))
            if not 0 < size <= RESPONSE_BYTES_MAX:
                raise ConnectionError(f"a response of {size} bytes")
            body = self._read(size)
        except OSError as error:
            name = type(request).__name__.removesuffix("Request")
            raise CommandError(f"{self._server} does not answer {name}: {error}") from None
        flexible = version >= RESPONSE_FLEXIBLE_FROM[request.API_KEY]
        return decode(response_class(request.API_KEY), version, body, 5 if flexible else 4)

    def coordinator_of(self, transactional_id: str) -> WireClient:
        """A connection to the broker that coordinates a transactional id."""
        request = FindCoordinatorRequest(
            coordinator_keys=[transactional_id], key_type=TRANSACTION_COORDINATOR
        )
        found = self.call(request, 4).coordinators[0]
        check(found.error_code, f"the coordinator of {transactional_id}")
        return WireClient(f"{found.host}:{found.port}")

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._socket.recv(count - len(data))
            if not chunk:
                raise ConnectionError("the connection was closed")
            data += chunk
        return bytes(data)


def _connected(bootstrap_server: str) -> socket.socket:
    """A connection to the first of the servers that takes one."""
    wait_until_listening(bootstrap_server)
    refusal: Exception = ValueError("not HOST:PORT")
    for address in map(server_address, bootstrap_server.split(",")):
        if address is None:
            continue
        try:
            return socket.create_connection(address, REQUEST_TIMEOUT_S)
        except OSError as error:
            refusal = error
    raise unreachable(bootstrap_server, refusal)


def check(code: int, what: str, message: str | None = None) -> None:
    """CommandError with Kafka's name of the error, unless there is none."""
    if code:
        name = ErrorCode(code).name
        raise CommandError(f"{what}: {name}" + (f" ({message})" if message else ""))
