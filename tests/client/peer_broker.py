"""The other end of a channel, in memory: it decodes requests and makes responses, good or bad."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from odradek.environment.randomness import SystemRandomness
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.headers import parse_request_header, response_header
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from odradek.protocol.registry import request_class

API_VERSIONS_MAX = 4


class Received(NamedTuple):
    """A request as the broker sees it."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Message


class PeerBroker:
    """Requests of one connection, in their order, and the bytes of responses to them.

    Args:
        versions: The versions of each API that it serves.
    """

    def __init__(self, versions: dict[int, tuple[int, int]]) -> None:
        self.versions = {int(ApiKey.API_VERSIONS): (0, API_VERSIONS_MAX), **versions}
        self._bytes = bytearray()

    def receive(self, data: bytes) -> list[Received]:
        """Return the requests that are complete with `data`."""
        self._bytes += data
        found = []
        while len(self._bytes) >= 4:
            (size,) = struct.unpack_from(">i", self._bytes)
            if len(self._bytes) < 4 + size:
                break
            frame = memoryview(bytes(self._bytes[4 : 4 + size]))
            del self._bytes[: 4 + size]
            api_key, version, correlation_id, client_id, pos = parse_request_header(frame)
            if api_key == ApiKey.API_VERSIONS and version > self.versions[api_key][1]:
                body: Message = request_class(api_key)()
            else:
                body = decode(request_class(api_key), version, frame, pos)
            found.append(Received(api_key, version, correlation_id, client_id, body))
        return found

    def respond(self, request: Received, response: Message | None = None) -> bytes:
        """Return the bytes of the response. ApiVersions has the versions as default."""
        if request.api_key == ApiKey.API_VERSIONS and response is None:
            return self._api_versions(request)
        assert response is not None
        return framed(request, encode(response, request.version))

    def _api_versions(self, request: Received) -> bytes:
        keys = [ApiVersion(key, *versions) for key, versions in self.versions.items()]
        if request.version > self.versions[ApiKey.API_VERSIONS][1]:
            error = int(ErrorCode.UNSUPPORTED_VERSION)
            return framed(request, encode(ApiVersionsResponse(error, keys), 0))
        return framed(request, encode(ApiVersionsResponse(0, keys), request.version))


def framed(request: Received, body: bytes, *, correlation_id: int | None = None) -> bytes:
    """Return a response with its size and header."""
    number = request.correlation_id if correlation_id is None else correlation_id
    data = response_header(request.api_key, request.version, number) + body
    return struct.pack(">i", len(data)) + data


class PeerTransport(asyncio.Transport):
    """The transport of one connection, whose other end is a `PeerBroker`."""

    def __init__(self, protocol: Any, peer: PeerBroker) -> None:
        super().__init__()
        self.protocol = protocol
        self.peer = peer
        self.requests: deque[Received] = deque()
        self.aborted = False

    def write(self, data: Any) -> None:
        assert not self.aborted
        self.requests += self.peer.receive(bytes(data))

    def abort(self) -> None:
        self.aborted = True

    def send(self, data: bytes) -> None:
        """Send bytes to the channel, like a transport that reads them at once."""
        view = memoryview(data)
        while view:
            room = self.protocol.get_buffer(-1)
            count = min(len(room), len(view))
            room[:count] = view[:count]
            view = view[count:]
            self.protocol.buffer_updated(count)

    def respond(self, response: Any = None) -> None:
        request = self.requests.popleft()
        self.send(self.peer.respond(request, response))

    def lose(self) -> None:
        self.aborted = True
        self.protocol.connection_lost(None)


class PeerNetwork:
    """Opens connections to `PeerBroker`s. `errors` has the outcomes of the next attempts."""

    def __init__(self, versions: dict[int, tuple[int, int]]) -> None:
        self.versions = versions
        self.connections: list[PeerTransport] = []
        self.errors: deque[Exception | None] = deque()
        self.hold: asyncio.Event | None = None
        self.addresses: list[tuple[str, int]] = []

    async def connect(
        self, host: str, port: int, protocol_factory: Callable[[], Any]
    ) -> tuple[Any, Any]:
        if self.hold is not None:
            await self.hold.wait()
        error = self.errors.popleft() if self.errors else None
        if error is not None:
            raise error
        self.addresses.append((host, port))
        protocol = protocol_factory()
        transport = PeerTransport(protocol, PeerBroker(self.versions))
        self.connections.append(transport)
        protocol.connection_made(transport)
        return transport, protocol


class MiddleNumbers(SystemRandomness):
    """Randomness without jitter."""

    def between(self, low: int, high: int) -> int:
        return (low + high) // 2
