"""Shapes of produce requests: the bytes that do not change from one request to the next.

A shape is learnt from a request and its response (`odradek.broker.requests.repeated_produce`). That
module imports this one with the first produce request, so a broker starts faster without it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.protocol.api_keys import FLEXIBLE_FROM, ApiKey
from odradek.protocol.codec import encoder
from odradek.protocol.framing import unpack_size
from odradek.protocol.headers import REQUEST_NUMBERS, parse_request_header, response_header
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.wire import Chunk, uvarint

if TYPE_CHECKING:
    from odradek.replication.partition import Partition

SHAPE_OBJECTS_BYTES = 900
"""Memory of the objects of one shape, without the bytes that it remembers (measured)."""
PARTITION_OBJECTS_BYTES = 250
"""The same for each partition after the first one."""
PREFIX_BYTES_MAX = 1_024
"""A request with more bytes before its first records is not remembered. A client id may have up to
32 KB.
"""

_CORRELATION_ID_BYTES = 4
_NUMBERS = struct.Struct(">qqq")
# Placeholders for the three numbers of a partition. They are consecutive in the encoded response,
# and no other field has the same bytes.
_MARKS = (0x2B4C6D8E0F1A3B5C, 0x3C5D7E9F102B4C6D, 0x4D6E8FA0213C5D7E)


@dataclass(slots=True, eq=False)
class ProduceShape:
    """The constant parts of a request and of its response.

    Attributes:
        position: Position in the frame at which the length of the first records begins.
        partitions: The partitions, in the order of the request.
        partition: The partition of a request that has only one. `tail` and `rest` are its gap and
            its rest.
        gaps: For each partition, the bytes after its records, up to the length of the next records
            or the end of the frame.
        pack: Makes the response from the correlation id, `head`, and for each partition three
            numbers and its element of `rests`.
        head: The bytes of the response between the correlation id and the first numbers.
        rests: For each partition, the bytes of the response after its three numbers.
        size_bytes: The memory that is charged for the shape.
        used: Whether a request has matched the shape since the connection last evicted one.
    """

    generation: int
    version: int
    flexible: bool
    position: int
    partitions: tuple[Partition, ...]
    gaps: tuple[bytes, ...]
    pack: Callable[..., bytes]
    head: bytes
    rests: tuple[bytes, ...]
    size_bytes: int
    used: bool = True
    partition: Partition | None = field(init=False)
    tail: bytes = field(init=False)
    tail_bytes: int = field(init=False)
    rest: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.partition = self.partitions[0] if len(self.partitions) == 1 else None
        self.tail, self.rest = self.gaps[0], self.rests[0]
        self.tail_bytes = len(self.tail)


def shape_of(
    version: int,
    frame: memoryview,
    request: ProduceRequest,
    response: bytes,
    partitions: tuple[Partition, ...],
    generation: int,
) -> tuple[bytes, ProduceShape] | None:
    """Return the prefix and the shape of a request.

    Return None if the request or its response differs from the bytes that the codec would write, or
    if the prefix is longer than `PREFIX_BYTES_MAX`.
    """
    constant = _constant_parts(version, frame, request)
    template = _template(version, request)
    if constant is None or template is None:
        return None
    position, gaps = constant
    head, rests = template
    if position > PREFIX_BYTES_MAX:
        return None
    prefix = bytes(frame[REQUEST_NUMBERS.size : position])
    pack = struct.Struct(f">i{len(head)}s" + "".join(f"qqq{len(rest)}s" for rest in rests)).pack
    (correlation_id,) = unpack_size(response, 0)
    numbers: list[int | bytes] = []
    at = _CORRELATION_ID_BYTES + len(head)
    for rest in rests:
        if at + _NUMBERS.size > len(response):
            return None
        numbers += (*_NUMBERS.unpack_from(response, at), rest)
        at += _NUMBERS.size + len(rest)
    if response != pack(correlation_id, head, *numbers):
        return None  # an error, or more than three numbers for a partition
    size_bytes = SHAPE_OBJECTS_BYTES + PARTITION_OBJECTS_BYTES * (len(partitions) - 1)
    size_bytes += len(prefix) + len(head) + sum(map(len, gaps)) + sum(map(len, rests))
    return prefix, ProduceShape(
        generation,
        version,
        _is_flexible(version),
        position,
        partitions,
        gaps,
        pack,
        head,
        rests,
        size_bytes,
    )


def _is_flexible(version: int) -> bool:
    return version >= FLEXIBLE_FROM[ApiKey.PRODUCE]


def _constant_parts(
    version: int, frame: memoryview, request: ProduceRequest
) -> tuple[int, tuple[bytes, ...]] | None:
    """Return the position of the length of the first records, and the gap of each partition.

    A gap is the bytes after a partition's records, up to the next length. Return None if the
    request differs from the bytes that the codec would write.
    """
    remaining = [data.records for topic in request.topic_data for data in topic.partition_data]
    chunks: list[Chunk] = []
    encoder(ProduceRequest, version)(request, chunks.append)
    start = at = parse_request_header(frame)[-1]
    parts: list[bytes] = []
    part = b""
    for chunk in chunks:
        if not remaining or chunk is not remaining[0]:
            part += chunk  # type: ignore[operator]
            continue
        size = len(remaining.pop(0) or b"")
        length_bytes = len(uvarint(size + 1)) if _is_flexible(version) else 4
        if frame[at : at + len(part)] != part:
            return None
        at += len(part) + size
        parts.append(part[: len(part) - length_bytes])
        part = b""
    if remaining or frame[at:] != part:
        return None
    head, *gaps = (*parts, part)
    return start + len(head), tuple(gaps)


def _template(version: int, request: ProduceRequest) -> tuple[bytes, tuple[bytes, ...]] | None:
    """Return the constant bytes of the response: its head, and the rest of each partition.

    The head ends before the first numbers and excludes the correlation id. A rest is the bytes
    after the three numbers of a partition. Return None for a version without the three numbers.
    """
    topics = [
        TopicProduceResponse(
            topic.name,
            topic.topic_id,
            [PartitionProduceResponse(each.index, 0, *_MARKS) for each in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    data = encoded(version, 0, ProduceResponse(topics))
    head, *rests = data[_CORRELATION_ID_BYTES:].split(_NUMBERS.pack(*_MARKS))
    return (head, tuple(rests)) if rests else None


def encoded(version: int, correlation_id: int, response: ProduceResponse) -> bytes:
    """Return the bytes of a response in the given version, without the size field."""
    chunks: list[Chunk] = [response_header(ApiKey.PRODUCE, version, correlation_id)]
    encoder(ProduceResponse, version)(response, chunks.append)
    return b"".join(chunks)  # type: ignore[arg-type]
