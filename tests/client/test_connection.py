"""The client's connection without sockets: order, correlation ids, versions, and bad responses."""

from __future__ import annotations

import struct
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.connection import (
    CORRELATION_ID_MAX,
    LARGE_FRAME_BYTES_MAX,
    SIZE_BYTES,
    ClientConnection,
    ConnectionClosed,
    InvalidResponse,
    TooManyRequests,
    UnsupportedRequest,
    expects_response,
)
from odradek.errors import ErrorCode
from odradek.protocol.api_keys import API_RANGES, ApiKey
from odradek.protocol.codec import Message, decode, encode
from odradek.protocol.errors import UnencodableMessage
from odradek.protocol.headers import parse_request_header, response_header
from odradek.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.envelope_request import EnvelopeRequest
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.heartbeat_request import HeartbeatRequest
from odradek.protocol.messages.heartbeat_response import HeartbeatResponse
from odradek.protocol.messages.metadata_request import MetadataRequest
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.registry import request_class, response_class
from tests.protocol.building import plain
from tests.protocol.golden import golden_messages

HEARTBEAT = HeartbeatRequest("g", 1, "m")


def test_a_large_request_is_copied_once() -> None:
    size = 4 * 1024 * 1024
    connection = ClientConnection()
    request = EnvelopeRequest(bytes(size), b"principal", bytes(4), "listener")
    small = connection.send(EnvelopeRequest(b"1", b"principal", bytes(4), "listener"), 0)
    tracemalloc.start()
    try:
        data = connection.send(request, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size < len(data) == int.from_bytes(data[:4], "big") + 4 < size + len(small) + 4
    assert peak < 1.5 * size


def exchanges() -> list[tuple[int, int, bytes]]:
    """Return (API key, version, response bytes) for each response that Kafka's classes wrote."""
    return [
        (cls.API_KEY, version, data)
        for cls, entries in golden_messages().items()
        if cls.__name__.endswith("Response") and cls.API_KEY >= 0
        for version, is_full, data in entries
        if is_full and cls.API_KEY != ApiKey.API_VERSIONS and is_known(cls.API_KEY, version)
    ]


def is_known(api_key: int, version: int) -> bool:
    try:
        cls = request_class(api_key)
    except (ValueError, ModuleNotFoundError):
        return False
    return cls.MIN_VERSION <= version <= cls.MAX_VERSION


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def heartbeat_response(correlation_id: int, code: int = 0) -> bytes:
    header = response_header(HeartbeatResponse.API_KEY, 4, correlation_id)
    return framed(header + encode(HeartbeatResponse(error_code=code), 4))


def sample(api_key: int, version: int) -> Message:
    """Return a request of this API that the version can hold."""
    cls: Any = request_class(api_key)
    for at, is_full, data in golden_messages()[cls]:
        if at == version and is_full:
            found: Message = decode(cls, version, data)
            return found
    empty: Message = cls()
    return empty


EXCHANGES = exchanges()


@given(
    chosen=st.lists(st.sampled_from(EXCHANGES), max_size=12),
    cuts=st.lists(st.integers(0, 4000), max_size=20),
    bytes_min=st.sampled_from([0, 1, 2, 50, 10_000]),
)
def test_pipelined_requests_get_their_responses_in_order_however_the_bytes_arrive(
    chosen: list[tuple[int, int, bytes]], cuts: list[int], bytes_min: int
) -> None:
    """The shell reads the rest of a frame in place if it has `bytes_min` bytes, 0: never."""
    connection = ClientConnection("me")
    stream = bytearray()
    expected = []
    for number, (api_key, version, data) in enumerate(chosen, 1):
        request = sample(api_key, version)
        sent = memoryview(connection.send(request, version))
        assert struct.unpack_from(">i", sent)[0] == len(sent) - 4
        header = parse_request_header(sent[4:])
        assert header[:4] == (api_key, version, number, "me")
        if not expects_response(request):
            continue
        stream += framed(response_header(api_key, version, number) + data)
        expected.append((number, response_class(api_key), version, data))
    assert connection.in_flight == len(expected)
    found = []
    bounds = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    for begin, end in pairwise(bounds):
        chunk = bytes(stream[begin:end])
        while chunk:
            rest = connection.rest_of_frame(bytes_min) if bytes_min else None
            if rest is None:
                connection.receive_data(chunk)
                chunk = b""
            else:
                count = min(len(rest), len(chunk))
                rest[:count] = chunk[:count]
                connection.filled(count)
                chunk = chunk[count:]
            while (response := connection.next_response()) is not None:
                found.append(response)
    assert [response.correlation_id for response in found] == [number for number, *_ in expected]
    for response, (_, cls, version, data) in zip(found, expected, strict=True):
        assert type(response.message) is cls
        assert encode(plain(response.message), version) == data
    assert connection.in_flight == 0 and connection.bytes_needed == 4


def test_a_frame_above_the_limit_gets_memory_as_its_bytes_arrive() -> None:
    connection = ClientConnection()
    connection.send(HEARTBEAT, 4)
    connection.receive_data(struct.pack(">i", LARGE_FRAME_BYTES_MAX - SIZE_BYTES + 1))
    assert connection.rest_of_frame(1) is None
    connection = ClientConnection()
    connection.send(HEARTBEAT, 4)
    connection.receive_data(struct.pack(">i", LARGE_FRAME_BYTES_MAX - SIZE_BYTES) + b"123")
    rest = connection.rest_of_frame(1)
    assert rest is not None and len(rest) == LARGE_FRAME_BYTES_MAX - SIZE_BYTES - 3
    assert connection.rest_of_frame(len(rest) + 1) is not None, "it has begun"
    assert connection.bytes_needed == len(rest)
    connection.receive_eof()
    with pytest.raises(ConnectionClosed):
        connection.next_response()


def test_bytes_may_follow_a_frame_received_in_place_before_it_is_taken() -> None:
    connection = ClientConnection()
    frames = [framed(bytes([number]) * 100_000) for number in (1, 2, 3)]
    connection.receive_data(frames[0][:10])
    rest = connection.rest_of_frame(1)
    assert rest is not None
    rest[:] = frames[0][10:]
    connection.filled(len(rest))
    connection.receive_data(frames[1] + frames[2][:5])
    connection.receive_data(frames[2][5:])
    for expected in frames:
        assert connection.next_frame() == expected[SIZE_BYTES:]
    assert connection.next_frame() is None


@pytest.mark.parametrize("size", [-1, 2**31 - 1])
def test_an_invalid_size_gets_no_memory(size: int) -> None:
    connection = ClientConnection()
    connection.send(HEARTBEAT, 4)
    connection.receive_data(struct.pack(">i", size))
    with pytest.raises(InvalidResponse):
        connection.next_response()
    assert connection.rest_of_frame(1) is None


@given(st.lists(st.integers(1, 60), min_size=1))
def test_reading_the_needed_bytes_never_reads_into_the_next_frame(
    sizes: list[int],
) -> None:
    connection = ClientConnection()
    stream = memoryview(b"".join(framed(bytes(size)) for size in sizes))
    frames = []
    while len(frames) < len(sizes):
        needed = connection.bytes_needed
        assert needed > 0
        connection.receive_data(bytes(stream[:needed]))
        stream = stream[needed:]
        if (frame := connection.next_frame()) is not None:
            frames.append(len(frame))
            assert connection.bytes_needed == 4
    assert frames == sizes and not stream


@pytest.mark.parametrize(
    "data",
    [
        heartbeat_response(2),
        heartbeat_response(0),
        struct.pack(">i", -1),
        struct.pack(">i", 1001),
        framed(b"\0\0\0\1"),  # the correlation id of the request, and no response
    ],
    ids=["a later id", "no id", "a negative size", "too large", "cut off"],
)
def test_an_invalid_response_ends_the_connection_permanently(data: bytes) -> None:
    connection = ClientConnection(response_bytes_max=1000)
    connection.send(HEARTBEAT, 4)
    connection.send(HEARTBEAT, 4)
    connection.receive_data(data)
    with pytest.raises(InvalidResponse):
        connection.next_response()
    connection.receive_data(heartbeat_response(1))
    for use in (connection.next_response, lambda: connection.send(HEARTBEAT, 4)):
        with pytest.raises(InvalidResponse):
            use()


def test_a_response_without_a_request_ends_the_connection() -> None:
    connection = ClientConnection()
    connection.receive_data(heartbeat_response(1))
    with pytest.raises(InvalidResponse):
        connection.next_response()


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 9])
def test_complete_responses_are_returned_after_the_end_of_the_stream(cut: int) -> None:
    connection = ClientConnection()
    connection.send(HEARTBEAT, 4)
    connection.send(HEARTBEAT, 4)
    connection.receive_data(heartbeat_response(1) + heartbeat_response(2)[:cut])
    connection.receive_eof()
    response = connection.next_response()
    assert response is not None and response.correlation_id == 1
    for use in (connection.next_response, lambda: connection.send(HEARTBEAT, 4)):
        with pytest.raises(ConnectionClosed):
            use()


def test_requests_in_flight_are_limited() -> None:
    connection = ClientConnection(in_flight_max=2)
    connection.send(HEARTBEAT, 4)
    connection.send(HEARTBEAT, 4)
    with pytest.raises(TooManyRequests):
        connection.send(HEARTBEAT, 4)
    connection.receive_data(heartbeat_response(1))
    assert connection.next_response() is not None
    connection.send(HEARTBEAT, 4)
    assert connection.last_correlation_id == 3


def test_a_request_that_cannot_be_encoded_is_not_in_flight() -> None:
    connection = ClientConnection()
    with pytest.raises(UnencodableMessage):
        connection.send(HeartbeatRequest("g", 2**40, "m"), 4)
    assert (connection.in_flight, connection.last_correlation_id) == (0, 0)


def test_correlation_ids_restart_after_the_largest() -> None:
    connection = ClientConnection()
    connection._correlation_id = CORRELATION_ID_MAX - 1
    ids = []
    for _ in range(3):
        connection.send(HEARTBEAT, 4)
        ids.append(connection.last_correlation_id)
    assert ids == [CORRELATION_ID_MAX, 1, 2]


def test_produce_without_acknowledgement_has_no_response() -> None:
    connection = ClientConnection()
    connection.send(ProduceRequest(None, 0, 1000, []), 9)
    connection.send(HEARTBEAT, 4)
    connection.receive_data(heartbeat_response(2))
    response = connection.next_response()
    assert response is not None and response.correlation_id == 2


@given(st.sampled_from([HeartbeatRequest, MetadataRequest, FetchRequest]), st.data())
def test_the_version_is_the_highest_that_both_sides_know(cls: Any, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, 20))
    high = data.draw(st.integers(0, 20))
    connection = ClientConnection()
    connection.learn_versions(ApiVersionsResponse(0, [ApiVersion(cls.API_KEY, low, high)]))
    both = set(range(low, high + 1)) & set(range(cls.MIN_VERSION, cls.MAX_VERSION + 1))
    if both:
        assert connection.version_of(cls) == max(both)
    else:
        with pytest.raises(UnsupportedRequest):
            connection.version_of(cls)


def test_without_the_brokers_versions_a_version_is_required() -> None:
    connection = ClientConnection()
    with pytest.raises(UnsupportedRequest):
        connection.send(HEARTBEAT)
    connection.learn_versions(ApiVersionsResponse(0, [ApiVersion(ApiKey.HEARTBEAT, 0, 3)]))
    _, version, *_ = parse_request_header(memoryview(connection.send(HEARTBEAT))[4:])
    assert version == 3


def test_a_broker_without_the_new_api_versions_responds_with_version_0() -> None:
    connection = ClientConnection()
    _, version, *_ = parse_request_header(memoryview(connection.api_versions("me", "1"))[4:])
    assert version == max(API_RANGES[ApiKey.API_VERSIONS])
    old = ApiVersionsResponse(
        int(ErrorCode.UNSUPPORTED_VERSION), [ApiVersion(ApiKey.API_VERSIONS, 0, 2)]
    )
    connection.receive_data(framed(response_header(18, 0, 1) + encode(old, 0)))
    response = connection.next_response()
    assert response is not None and isinstance(response.message, ApiVersionsResponse)
    assert response.message.api_keys == [ApiVersion(ApiKey.API_VERSIONS, 0, 2)]
