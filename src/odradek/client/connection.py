"""The client's end of one connection to a broker, without input and output.

`ClientConnection` turns requests into bytes and bytes into responses. It assigns correlation ids,
keeps the requests in flight in order, and chooses versions from the broker's ApiVersions response.
A shell moves the bytes (`blocking`, `broker_channel`)::

    data = connection.send(request)        the shell writes `data` to its socket
    connection.receive_data(chunk)         the shell has read `chunk`
    response = connection.next_response()  None: more data is needed

A broker executes the requests of a connection in order and returns the responses in order. A
response with another correlation id therefore ends the connection.
"""

from __future__ import annotations

import io
import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from odradek.errors import ErrorCode
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import Decoder, Encoder, Message, decode, decoder, encoder
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.framing import frame_size
from odradek.protocol.headers import REQUEST_NUMBERS, RESPONSE_FLEXIBLE_FROM, request_header
from odradek.protocol.messages.api_versions_request import ApiVersionsRequest
from odradek.protocol.messages.api_versions_response import ApiVersionsResponse
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.registry import response_class
from odradek.protocol.wire import ANY_LATER

RESPONSE_BYTES_MAX = 100 * 1024 * 1024
"""Largest response that the client accepts, equal to Kafka's default limit of a request."""

IN_FLIGHT_MAX = 10_000
"""Requests without a response on one connection."""

LARGE_FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Largest frame that gets memory for all of its bytes before they have arrived."""

CORRELATION_ID_MAX = 2**31 - 1
SIZE_BYTES = 4
_SIZE_AND_ID = struct.Struct(">ii")
"""The size of a response, and its correlation id."""
_SIZED_NUMBERS = struct.Struct(">ihhi")
"""The size of a request, and `REQUEST_NUMBERS`."""


class ConnectionClosed(ConnectionError):
    """The connection ended before the response arrived."""


class InvalidResponse(ConnectionError):
    """The broker sent bytes that are not the response to the oldest request in flight."""


class UnsupportedRequest(Exception):
    """The broker serves no version of the request that this client knows."""


class TooManyRequests(Exception):
    """The limit of requests in flight is reached."""


class Response(NamedTuple):
    """A response, and the correlation id of its request."""

    correlation_id: int
    message: Message


class PackedRequest(ABC):
    """A request whose sender has encoded the body. Subclasses name the API and the decoder.

    Attributes:
        body: The request without its header.
    """

    SPEC: ClassVar[str]
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body

    @staticmethod
    @abstractmethod
    def decode_response(frame: memoryview, pos: int) -> tuple[Message, int]:
        """Return the response at a position of a frame, and its end, as a decoder of the codec."""


def _encode_packed(request: PackedRequest, append: Callable[[bytes], object]) -> None:
    append(request.body)


class _Codec:
    """The codec of one version of an API, found once for a connection.

    Attributes:
        head: The part of the request header after the numbers: client id and tag section.
        encode: The encoder of the request.
        decode: The decoder of the response. None before the first one, and for ApiVersions, whose
            error has the format of version 0.
        position: The position of the response in its frame.
    """

    __slots__ = ("api_key", "decode", "encode", "head", "position", "version")

    def __init__(self, request: type[Message], version: int, client_id: str) -> None:
        self.api_key = api_key = request.API_KEY
        self.version = version
        self.head = request_header(api_key, version, 0, client_id)[REQUEST_NUMBERS.size :]
        self.encode: Encoder[Any]
        self.decode: Decoder[Message] | None = None
        if issubclass(request, PackedRequest):
            self.encode, self.decode = _encode_packed, request.decode_response
        else:
            self.encode = encoder(request, version)
        is_flexible = version >= RESPONSE_FLEXIBLE_FROM.get(api_key, ANY_LATER)
        self.position = 5 if is_flexible else 4

    def framed(self, request: Message, correlation_id: int) -> bytes:
        """Return a request with its size and header. Values of megabytes are copied once."""
        chunks: list[Any] = [b"", self.head]
        self.encode(request, chunks.append)
        size = REQUEST_NUMBERS.size + sum(map(len, chunks))
        chunks[0] = _SIZED_NUMBERS.pack(size, self.api_key, self.version, correlation_id)
        return b"".join(chunks)

    def decoded(self, frame: memoryview) -> Message:
        """Return the response in a frame without its size."""
        if self.decode is not None:
            return self.decode(frame, self.position)[0]
        version, position = self.version, self.position
        if self.api_key == ApiKey.API_VERSIONS:
            code = int.from_bytes(frame[position : position + 2], "big")
            if code == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
        else:
            self.decode = decoder(response_class(self.api_key), version)
        return decode(response_class(self.api_key), version, frame, position)


class ClientConnection:
    """State of one connection: requests in flight, received bytes, versions of the broker.

    Owned by its shell, which calls it from one thread or loop. After an `InvalidResponse` every
    call raises it again, because later bytes cannot be assigned to a request. After the end of the
    stream only complete frames that had been received before are returned. `versions` has the
    broker's lowest and highest version of each API key, and is empty until `learn_versions`.
    """

    def __init__(
        self,
        client_id: str = "",
        *,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self.client_id = client_id
        self._response_bytes_max = response_bytes_max
        self._in_flight_max = in_flight_max
        # Correlation id and codec of each request.
        self._in_flight: deque[tuple[int, _Codec]] = deque()
        self._codecs: dict[tuple[type[Message], int], _Codec] = {}
        self._correlation_id = 0
        # Bytes of one read are kept as they came: most reads are exactly one response.
        self._received: bytes | bytearray | memoryview = b""
        # A frame that the shell receives in place: its memory, and the number of bytes it has.
        self._large: memoryview | None = None
        self._filled = 0
        self.versions: dict[int, tuple[int, int]] = {}
        self._invalid: InvalidResponse | None = None
        self._ended = False

    # --- sending ---

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for a response."""
        return len(self._in_flight)

    @property
    def last_correlation_id(self) -> int:
        """Correlation id of the request that was sent last, or 0 before the first one."""
        return self._correlation_id

    def send(
        self, request: Message, version: int | None = None, *, client_id: str | None = None
    ) -> bytes:
        """Return the bytes of `request` with its size, and expect its response from now on.

        Args:
            request: Any request message.
            version: The version. None is the highest version that both sides know.
            client_id: Instead of the connection's.

        Raises:
            UnsupportedRequest: There is no such version.
            TooManyRequests: The limit of requests in flight is reached.
            UnencodableMessage: The message has a value that does not fit the version.
        """
        self._check()
        if len(self._in_flight) >= self._in_flight_max:
            raise TooManyRequests(f"{len(self._in_flight)} requests are in flight")
        if version is None:
            version = self.version_of(type(request))
        correlation_id = self._correlation_id % CORRELATION_ID_MAX + 1
        if client_id is None:
            codec = self._codecs.get((type(request), version))
            if codec is None:
                codec = _Codec(type(request), version, self.client_id)
                self._codecs[type(request), version] = codec
        else:
            codec = _Codec(type(request), version, client_id)
        data = codec.framed(request, correlation_id)
        self._correlation_id = correlation_id
        if request.API_KEY != ApiKey.PRODUCE or expects_response(request):
            self._in_flight.append((correlation_id, codec))
        return data

    def version_of(self, request: type[Message]) -> int:
        """Return the highest version of a request that this client and the broker know."""
        low, high = self.versions.get(request.API_KEY, (0, -1))
        version = min(high, request.MAX_VERSION)
        if version < max(low, request.MIN_VERSION):
            known = f"{request.MIN_VERSION} to {request.MAX_VERSION}"
            theirs = f"{low} to {high}" if high >= low else "none"
            raise UnsupportedRequest(f"{request.SPEC}: versions {known}, of the broker {theirs}")
        return version

    def learn_versions(self, response: ApiVersionsResponse) -> None:
        """Choose versions by the broker's response to ApiVersions from now on."""
        self.versions = {
            each.api_key: (each.min_version, each.max_version) for each in response.api_keys
        }

    def api_versions(self, software: str, software_version: str) -> bytes:
        """Return the bytes of an ApiVersions request of the highest version.

        A broker that does not know the version responds with version 0 and its range (KIP-511).
        """
        request = ApiVersionsRequest(software, software_version)
        return self.send(request, ApiVersionsRequest.MAX_VERSION)

    # --- receiving ---

    @property
    def bytes_needed(self) -> int:
        """The number of bytes missing from the next frame: from its size, or from its body."""
        if self._large is not None:
            return len(self._large) - self._filled
        have = len(self._received)
        if have < SIZE_BYTES:
            return SIZE_BYTES - have
        return max(0, SIZE_BYTES + self._size() - have)

    def rest_of_frame(self, bytes_min: int) -> memoryview | None:
        """Return memory for the rest of the next frame, if that has `bytes_min` bytes or more.

        The shell may read into it and report the count to `filled`, which saves two copies of a
        large response. Return None for a smaller rest, and for a frame above
        `LARGE_FRAME_BYTES_MAX`, whose memory grows with the bytes that arrive.
        """
        if self._large is None:
            if len(self._received) < SIZE_BYTES or self._invalid is not None:
                return None
            size = SIZE_BYTES + self._size()
            have = len(self._received)
            if size - have < bytes_min or size > LARGE_FRAME_BYTES_MAX:
                return None
            self._large = _allocate(size)
            self._large[:have] = self._received
            self._filled = have
            self._received = b""
        return self._large[self._filled :]

    def filled(self, count: int) -> None:
        """Note that the first `count` bytes of `rest_of_frame` have arrived."""
        assert self._large is not None
        self._filled += count
        if self._filled == len(self._large):
            self._received, self._large = self._large, None

    def receive_data(self, data: bytes) -> None:
        """Accept bytes from the socket, any number of them."""
        assert self._large is None, "the rest of a frame is received in place"
        if not self._received:
            self._received = data
            return
        received = self._received
        if not isinstance(received, bytearray):
            self._received = received = bytearray(received)
        received += data

    def receive_eof(self) -> None:
        """Note that the broker has closed the connection."""
        self._ended = True

    def next_frame(self) -> bytes | None:
        """Return the next frame without its size, or None when more bytes are needed."""
        frame = self._take()
        return None if frame is None else bytes(frame)

    def next_response(self) -> Response | None:
        """Return the response to the oldest request in flight, or None when more bytes are needed.

        Raises:
            InvalidResponse: The bytes are not that response.
            ConnectionClosed: The connection ended before.
        """
        frame = self._take()
        if frame is None:
            return None
        correlation_id = int.from_bytes(frame[:SIZE_BYTES], "big")
        if not self._in_flight or self._in_flight[0][0] != correlation_id:
            raise self._fail(f"no request has correlation id {correlation_id}")
        _, codec = self._in_flight.popleft()
        try:
            return Response(correlation_id, codec.decoded(frame))
        except MalformedMessage as error:
            raise self._fail(f"malformed response: {error}") from error

    def sole_response(self, data: bytes) -> Message | None:
        """Return the response if `data` is all of it, and that of the only request in flight.

        Return None otherwise, and for a frame that is not a valid response. Nothing has changed
        then, and `receive_data` takes the bytes.
        """
        if self._received or self._large is not None or len(self._in_flight) != 1:
            return None
        size, correlation_id = _SIZE_AND_ID.unpack_from(data) if len(data) >= 8 else (0, 0)
        expected, codec = self._in_flight[0]
        if size != len(data) - SIZE_BYTES or correlation_id != expected or self._ended:
            return None
        if size > self._response_bytes_max or self._invalid is not None:
            return None
        try:
            message = codec.decoded(memoryview(data)[SIZE_BYTES:])
        except MalformedMessage:
            return None
        self._in_flight.popleft()
        return message

    def _take(self) -> memoryview | None:
        """Return the next frame, which shares no memory with later bytes, or None if incomplete."""
        received = self._received
        have = len(received)
        if have < SIZE_BYTES or self._large is not None:
            self._check()
            return None
        end = SIZE_BYTES + self._size()
        if have < end:
            self._check()
            return None
        if have == end:
            self._received = b""
            return memoryview(received)[SIZE_BYTES:]
        with memoryview(received) as view:
            frame = bytes(view[SIZE_BYTES:end])
        rest = received if isinstance(received, bytearray) else bytearray(received)
        del rest[:end]
        self._received = rest
        return memoryview(frame)

    def _size(self) -> int:
        if self._invalid is not None:
            raise self._invalid
        try:
            return frame_size(self._received, 0, self._response_bytes_max)
        except MalformedMessage as error:
            raise self._fail(f"response: {error}") from error

    def _check(self) -> None:
        if self._invalid is not None:
            raise self._invalid
        if self._ended:
            raise ConnectionClosed("the broker closed the connection")

    def _fail(self, reason: str) -> InvalidResponse:
        self._invalid = InvalidResponse(reason)
        return self._invalid


def _allocate(size: int) -> memoryview:
    """Return a zeroed, writable buffer.

    The buffer of a `bytes` object is from `calloc`. New memory of the system is zero already, so it
    is not written before the bytes arrive. `bytearray(size)` writes it: 10 MiB take 6 ms.
    """
    return io.BytesIO(bytes(size)).getbuffer()


def expects_response(request: Message) -> bool:
    """Return whether a broker responds: to every request but Produce with acks=0."""
    return not (isinstance(request, ProduceRequest) and request.acks == 0)


def request_frame(
    request: Message, version: int, correlation_id: int = 1, client_id: str = ""
) -> bytes:
    """Return a request with its header, without the size in front."""
    return _Codec(type(request), version, client_id).framed(request, correlation_id)[SIZE_BYTES:]
