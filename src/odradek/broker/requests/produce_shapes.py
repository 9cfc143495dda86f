"""Shapes of produce requests: the bytes that do not change from one request to the next.

A shape is learnt from a request and its response (`odradek.broker.requests.repeated_produce`). That
module imports this one with the first produce request, so a broker starts faster without it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.broker.requests.apis import PRODUCE_TOPIC_ID_FROM
from odradek.protocol.api_keys import FLEXIBLE_FROM, ApiKey
from odradek.protocol.codec import encoder
from odradek.protocol.framing import pack_size, unpack_size
from odradek.protocol.headers import REQUEST_NUMBERS, parse_request_header, response_header
from odradek.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
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
STEP_BYTES = 130
"""The same for each partition of a shape that has several."""
LINK_BYTES = 300
"""Memory of one link, see `Links`."""
PREFIX_BYTES_MAX = 1_024
"""A request with more bytes before its first records is not remembered. A client id may have up to
32 KB.
"""

_CORRELATION_ID_BYTES = 4
_NUMBERS = struct.Struct(">qqq")
# Placeholders for the three numbers of a partition. They are consecutive in the encoded response,
# and no other field has the same bytes.
_MARKS = (0x2B4C6D8E0F1A3B5C, 0x3C5D7E9F102B4C6D, 0x4D6E8FA0213C5D7E)


Link = tuple["Partition | None", bytes]
"""The next partition of the request, and the bytes of the response between the numbers of two
partitions. At the end of the request the partition is None.
"""
Links = dict[bytes, Link]
"""Links by the bytes of the request between the records of a partition and the next length."""
LinksByTopic = dict[tuple[int, str, int, int], Links]
"""Links by version, topic, length of each key, and length of the response in each link.

The bytes between two partitions of one topic depend only on the version and the next partition. All
shapes of a connection therefore share the links of a topic. A request with any selection of the
partitions matches a shape if each partition has a link.
"""


@dataclass(slots=True, eq=False)
class ProduceShape:
    """The constant parts of a request and of its response.

    Attributes:
        position: Position in the frame at which the length of the first records begins.
        first: The first partition.
        partition: The partition of a request that has only one.
        tail: The bytes after the last records, up to the end of the frame.
        steps: For each partition, the number of bytes after its records, and the links to the next
            partition. Empty for a request that has only one partition.
        pack: Makes the response from `response_bytes`, the correlation id, `head`, and for each
            partition three numbers and the bytes after them.
        response_bytes: The size of the response.
        head: The bytes of the response between the correlation id and the first numbers.
        rest: The bytes of the response after the last numbers.
        acks, timeout_ms: The values of the request.
        size_bytes: The memory that is charged for the shape, without the links that it shares.
        used: Whether a request has matched the shape since the connection last evicted one.
    """

    version: int
    flexible: bool
    position: int
    first: Partition
    partition: Partition | None
    tail: bytes
    tail_bytes: int
    steps: tuple[tuple[int, Links], ...]
    pack: Callable[..., bytes]
    response_bytes: int
    head: bytes
    rest: bytes
    acks: int
    timeout_ms: int
    size_bytes: int
    used: bool = True


def shape_of(
    version: int,
    frame: memoryview,
    request: ProduceRequest,
    response: bytes,
    partitions: tuple[Partition, ...],
    links: LinksByTopic,
) -> tuple[bytes, ProduceShape, int] | None:
    """Return the prefix and the shape of a request, and the number of links added to `links`.

    Return None if the request or its response differs from the bytes that the codec would write, or
    if the prefix is longer than `PREFIX_BYTES_MAX`. The response is empty while it is not known.
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
    pack = struct.Struct(f">ii{len(head)}s" + "".join(f"qqq{len(rest)}s" for rest in rests)).pack
    response_bytes = _CORRELATION_ID_BYTES + len(head)
    response_bytes += sum(_NUMBERS.size + len(rest) for rest in rests)
    if response:
        if len(response) != response_bytes:
            return None
        (correlation_id,) = unpack_size(response, 0)
        numbers: list[int | bytes] = []
        at = _CORRELATION_ID_BYTES + len(head)
        for rest in rests:
            numbers += (*_NUMBERS.unpack_from(response, at), rest)
            at += _NUMBERS.size + len(rest)
        packed = pack(response_bytes, correlation_id, head, *numbers)
        if pack_size(response_bytes) + response != packed:
            return None  # an error, or more than three numbers for a partition
    elif len({(topic.name, topic.topic_id) for topic in request.topic_data}) < len(
        request.topic_data
    ):
        return None  # the response names a topic once
    size_bytes = SHAPE_OBJECTS_BYTES + len(prefix) + len(head) + len(gaps[-1]) + len(rests[-1])
    steps: tuple[tuple[int, Links], ...] = ()
    added = 0
    if len(partitions) > 1:
        steps, own, added = _steps(version, request, gaps, rests, partitions, links)
        size_bytes += STEP_BYTES * len(partitions) + LINK_BYTES * own
    shape = ProduceShape(
        version,
        _is_flexible(version),
        position,
        partitions[0],
        partitions[0] if len(partitions) == 1 else None,
        gaps[-1],
        len(gaps[-1]),
        steps,
        pack,
        response_bytes,
        head,
        rests[-1],
        request.acks,
        request.timeout_ms,
        size_bytes,
    )
    return prefix, shape, added


def _steps(
    version: int,
    request: ProduceRequest,
    gaps: tuple[bytes, ...],
    rests: tuple[bytes, ...],
    partitions: tuple[Partition, ...],
    links: LinksByTopic,
) -> tuple[tuple[tuple[int, Links], ...], int, int]:
    """Return the steps of a shape, the number of its own links, and the number added to `links`.

    The links to the next topic and to the end of the request belong to the shape. Each topic has
    therefore as many partitions as in the request from which the shape was learnt.
    """
    followed = [
        number + 1 < len(topic.partition_data)
        for topic in request.topic_data
        for number in range(len(topic.partition_data))
    ]
    steps: list[tuple[int, Links]] = []
    own = added = 0
    for gap, rest, partition, following, same_topic in zip(
        gaps, rests, partitions, (*partitions[1:], None), followed, strict=True
    ):
        if same_topic:
            key = (version, partition.topic_partition.topic, len(gap), len(rest))
            shared = links.setdefault(key, {})
            added += gap not in shared
            shared[gap] = (following, rest)
            steps.append((len(gap), shared))
        else:
            own += 1
            steps.append((len(gap), {gap: (following, rest)}))
    return tuple(steps), own, added


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


def request_of(version: int, acks: int, partitions: Iterable[Partition]) -> ProduceRequest:
    """Return the request for these partitions, without records."""
    topics: list[TopicProduceData] = []
    by_id = version >= PRODUCE_TOPIC_ID_FROM
    previous = None
    for partition in partitions:
        topic, number = partition.topic_partition
        if topic != previous:
            previous = topic
            if by_id:
                topics.append(TopicProduceData(topic_id=partition.topic_id))
            else:
                topics.append(TopicProduceData(topic))
        topics[-1].partition_data.append(PartitionProduceData(number))
    return ProduceRequest(acks=acks, topic_data=topics)


def encoded(version: int, correlation_id: int, response: ProduceResponse) -> bytes:
    """Return the bytes of a response in the given version, without the size field."""
    chunks: list[Chunk] = [response_header(ApiKey.PRODUCE, version, correlation_id)]
    encoder(ProduceResponse, version)(response, chunks.append)
    return b"".join(chunks)  # type: ignore[arg-type]
