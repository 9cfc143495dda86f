"""Shapes of fetch requests: the bytes that do not change from one request to the next.

A shape is learnt from a request and its response (`odradek.broker.requests.repeated_fetch`). That
module imports this one with the first fetch, so a broker starts faster without it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from odradek.broker.handlers.fetch import ZSTD_VERSION, fetch_params
from odradek.broker.requests.fetch_requests import TOPIC_ID_VERSION, requested_partition
from odradek.broker.requests.fetch_sessions import FetchPartition
from odradek.protocol.api_keys import FLEXIBLE_FROM, ApiKey
from odradek.protocol.codec import encoder
from odradek.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, INVALID_SESSION_ID
from odradek.protocol.framing import pack_size
from odradek.protocol.headers import parse_request_header, response_header
from odradek.protocol.messages.fetch_request import FetchRequest
from odradek.protocol.messages.fetch_response import FetchResponse
from odradek.protocol.wire import Chunk, uvarint
from odradek.replication.delayed_fetch import CONSUMER

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.net.connection import Chunks
    from odradek.protocol.codec import Message
    from odradek.replication.fetch_data import FetchIsolation
    from odradek.replication.partition import Partition

FRAME_BYTES_MAX = 1_024
"""A longer request is not remembered. A client id may have up to 32 KB."""

# Placeholders for the numbers that change. No other field has the same bytes.
_EPOCH = 0x5A6B7C8D
_OFFSET = 0x4B5C6D7E8F0A1B2C
_NUMBERS = struct.Struct(">qqq")
_MARKS = (0x2B4C6D8E0F1A3B5C, 0x3C5D7E9F102B4C6D, 0x4D6E8FA0213C5D7E)
_CORRELATION_ID_BYTES = 4


@dataclass(slots=True, eq=False)
class FetchShape:
    """The constant parts of a request for one partition, and of its response with records.

    Attributes:
        generation: The generation of `ReplicaManager` in which the shape was learnt.
        frame_bytes: The size of the request.
        unpack: Splits the request at the numbers that change: API key and version, correlation id,
            bytes, session epoch, bytes, fetch offset, bytes.
        constant: The four parts of the request that do not change.
        partition: The partition that is read.
        requested: The parameters of the request for the partition.
        isolation: The isolation of the read.
        max_bytes: The limit of the read: that of the partition, of the request or of the broker.
        min_bytes: The size of the records below which the request has to wait.
        session_id: The fetch session of the request, or 0. The shape does not keep the session
            itself in memory, because a client may add partitions to it and then close it.
        known: The only partition of the session, None without a session.
        flexible: Whether the size of the records is a varint.
        pack: Makes the response up to the size of the records from the correlation id, `head`, the
            three offsets and `middle`.
        head: The bytes of the response between the correlation id and the offsets.
        middle: The bytes between the offsets and the size of the records.
        tail: The bytes after the records.
        misses: Number of requests since the shape was learnt that the general path executed.
        learn_after: Number of such requests after which another shape is learnt.
    """

    generation: int
    frame_bytes: int
    unpack: Callable[[memoryview], tuple[Any, ...]]
    constant: tuple[bytes, bytes, bytes, bytes]
    partition: Partition
    requested: FetchPartition
    isolation: FetchIsolation
    max_bytes: int
    min_bytes: int
    session_id: int
    known: FetchPartition | None
    flexible: bool
    pack: Callable[..., bytes]
    head: bytes
    middle: bytes
    tail: bytes
    misses: int = 0
    learn_after: int = 1


def shape_of(
    services: Services,
    context: RequestContext,
    frame: memoryview,
    request: Message,
    response: Message,
    reply: Chunks,
) -> FetchShape | None:
    """Return the shape of a request that was executed, or None if it has none.

    A request has a shape if a consumer requests one partition, outside of a session or in a session
    with this partition only, and the response has records. There is none if the request or its
    response differs from the bytes that the codec would write.
    """
    assert isinstance(request, FetchRequest)
    assert isinstance(response, FetchResponse)
    if (
        len(frame) > FRAME_BYTES_MAX
        or request.replica_state is not None
        or [len(topic.partitions) for topic in request.topics] != [1]
        or [len(topic.partitions) for topic in response.responses] != [1]
        or request.forgotten_topics_data
        or context.api_version < ZSTD_VERSION
        or services.quotas.fetch.enabled
    ):
        return None
    data = response.responses[0].partitions[0]
    in_session = _session(services, request)
    if not data.records or data.aborted_transactions or in_session is None:
        return None
    params = fetch_params(services, context, request)
    by_id = context.api_version >= TOPIC_ID_VERSION
    requested = requested_partition(by_id, request.topics[0])
    manager = services.replica_manager
    partition = manager.find(requested.topic, requested.partition)
    if params.replica_id != CONSUMER or partition is None:
        return None
    request_parts = _request_parts(context, frame, request)
    response_parts = _response_parts(context, response, reply)
    if request_parts is None or response_parts is None:
        return None
    unpack, constant = request_parts
    pack, head, middle, tail = response_parts
    session_id, known = in_session
    return FetchShape(
        generation=manager.generation,
        frame_bytes=len(frame),
        unpack=unpack,
        constant=constant,
        partition=partition,
        requested=requested,
        isolation=params.isolation,
        max_bytes=min(requested.max_bytes, params.max_bytes),
        min_bytes=params.min_bytes,
        session_id=session_id,
        known=known,
        flexible=_is_flexible(context),
        pack=pack,
        head=head,
        middle=middle,
        tail=tail,
    )


def _is_flexible(context: RequestContext) -> bool:
    return context.api_version >= FLEXIBLE_FROM[ApiKey.FETCH]


def _session(services: Services, request: FetchRequest) -> tuple[int, FetchPartition | None] | None:
    """Return the id of the session and its only partition, or 0 and None without a session.

    Return None for a session with several partitions, and for a request that opens or closes one.
    """
    if request.session_epoch == FINAL_EPOCH:
        return (INVALID_SESSION_ID, None) if request.session_id == INVALID_SESSION_ID else None
    session = services.fetch_sessions.sessions.get(request.session_id)
    if session is None or request.session_epoch == INITIAL_EPOCH or len(session.partitions) != 1:
        return None
    (known,) = session.partitions.values()
    return session.id, known


def _request_parts(
    context: RequestContext, frame: memoryview, request: FetchRequest
) -> tuple[Callable[[memoryview], tuple[Any, ...]], tuple[bytes, bytes, bytes, bytes]] | None:
    """Return the function that splits the request, and its constant parts."""
    (topic,) = request.topics
    marked = replace(
        request,
        session_epoch=_EPOCH,
        topics=[replace(topic, partitions=[replace(topic.partitions[0], fetch_offset=_OFFSET)])],
    )
    chunks: list[Chunk] = []
    encoder(FetchRequest, context.api_version)(marked, chunks.append)
    body = b"".join(chunks)  # type: ignore[arg-type]
    before_epoch, epoch, rest = body.partition(_EPOCH.to_bytes(4, "big"))
    before_offset, offset, rest = rest.partition(_OFFSET.to_bytes(8, "big"))
    header = bytes(frame[: parse_request_header(frame)[-1]])
    split = struct.Struct(
        f">4si{len(header) - 8 + len(before_epoch)}si{len(before_offset)}sq{len(rest)}s"
    )
    constant = (header[:4], header[8:] + before_epoch, before_offset, rest)
    if not epoch or not offset or split.size != len(frame):
        return None
    found = split.unpack(frame)
    return (
        (split.unpack, constant) if (found[0], found[2], found[4], found[6]) == constant else None
    )


def _response_parts(
    context: RequestContext, response: FetchResponse, reply: Chunks
) -> tuple[Callable[..., bytes], bytes, bytes, bytes] | None:
    """Return the function that packs the response, its head, its middle and its tail."""
    (topic,) = response.responses
    (data,) = topic.partitions
    region = data.records
    assert region is not None  # `shape_of` has checked it
    first, second, third = _MARKS
    marked_data = replace(
        data, high_watermark=first, last_stable_offset=second, log_start_offset=third
    )
    marked = replace(response, responses=[replace(topic, partitions=[marked_data])])
    chunks: list[Chunk] = []
    encoder(FetchResponse, context.api_version)(marked, chunks.append)
    before, tail = _around(chunks, region)
    size = uvarint(len(region) + 1) if _is_flexible(context) else pack_size(len(region))
    header = response_header(ApiKey.FETCH, context.api_version, context.correlation_id)
    head, marks, middle = before.removesuffix(size).partition(_NUMBERS.pack(*_MARKS))
    head = header[_CORRELATION_ID_BYTES:] + head
    pack = struct.Struct(f">i{len(head)}sqqq{len(middle)}s").pack
    numbers = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
    packed = pack(context.correlation_id, head, *numbers, middle) + size
    return (
        (pack, head, middle, tail) if marks and _around(reply, region) == (packed, tail) else None
    )


def _around(chunks: Sequence[object], region: object) -> tuple[bytes, bytes]:
    """Return the bytes before and after `region`."""
    (at,) = (at for at, chunk in enumerate(chunks) if chunk is region)
    return b"".join(chunks[:at]), b"".join(chunks[at + 1 :])  # type: ignore[arg-type]
