"""Produce requests that are like one before, but for the correlation id and the records.

A producer sends the same bytes around its records again and again: client id, acks, time-out,
topic, partition. A connection remembers those of the requests that were executed in the usual way;
a frame with the same bytes in the same places is executed without being decoded, and its answer,
which differs in three numbers from the one before, is not encoded. That is more than half of the
Python of a request. What is remembered comes out of the codec and is compared with the frame that
it was learnt from: nothing here knows what a version looks like.

Whatever is not as usual is left to the handler, with nothing done: a partition that is gone, is
looked into, or does not commit at once, a quota. A batch that is refused is not: the log may have
written into it already. The handler's own words say what was wrong with it, so a request gets the
same answer on both ways.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.broker.requests.context import RequestContext
from odradek.errors import KafkaError
from odradek.protocol.api_keys import FLEXIBLE_FROM, ApiKey
from odradek.protocol.codec import decoder, encoder
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.framing import unpack_size
from odradek.protocol.headers import parse_request_header, response_header
from odradek.protocol.messages.produce_request import ProduceRequest
from odradek.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.wire import uvarint, uvarint_rest
from odradek.replication.partition import ACKS_ALL, ACKS_LEADER
from odradek.replication.record_append import refused

if TYPE_CHECKING:
    from odradek.broker.requests.context import Services
    from odradek.broker.requests.shape_budget import ShapeBudget
    from odradek.ids import Uuid
    from odradek.net.connection import Connection
    from odradek.replication.partition import Partition

SHAPES_MAX = 64
"""Requests that one connection remembers, one for each partition mostly; some 700 bytes each."""
LENGTHS_MAX = 4
"""Different places of the records in them: topics differ in the lengths of their names."""
SHAPE_OBJECTS_BYTES = 750
"""Memory of the objects of one shape, without the bytes that it remembers (measured)."""
PREFIX_BYTES_MAX = 1_024
"""A longer one is not remembered: a client's id may have 32 KB."""
TOPIC_ID_VERSION = 13
ZSTD_VERSION = 7

_HEAD = struct.Struct(">hhi")
_HEAD_BYTES = _HEAD.size
_CORRELATION_ID_BYTES = 4
_NUMBERS = struct.Struct(">qqq")
# In a response they stand one after the other, and nothing else in it is like them.
_MARKS = (0x2B4C6D8E0F1A3B5C, 0x3C5D7E9F102B4C6D, 0x4D6E8FA0213C5D7E)

_unpack_head = _HEAD.unpack_from


class _Shape(NamedTuple):
    """What is the same in all of them. `pack` takes the correlation id, `head`, three numbers and
    `rest`, and makes the response.
    """

    version: int
    flexible: bool
    topic_id: Uuid | None
    name: str
    partition_index: int
    tail: bytes
    tail_bytes: int
    pack: Callable[..., bytes]
    head: bytes
    rest: bytes


@dataclass(slots=True, eq=False)
class Memory:
    """What one connection remembers: the shapes by the bytes from the client id to the length of
    the records, and where in their frames that length stands. `used`: see `ShapeHolder`.
    """

    shapes: dict[bytes, _Shape] = field(default_factory=dict)
    positions: list[int] = field(default_factory=list)
    used: bool = False

    def forget(self) -> None:
        """Forget all shapes."""
        self.shapes.clear()
        self.positions.clear()


class RepeatedProduce:
    """Used on the event loop only."""

    __slots__ = ("_budget", "_quota", "_services")

    def __init__(self, services: Services, budget: ShapeBudget) -> None:
        self._services = services
        self._budget = budget
        self._quota = services.quotas.produce

    def answer(self, connection: Connection, frame: memoryview) -> list[bytes] | None:
        """The response, or None: the handler has to execute the request."""
        memory: Memory = connection.memory
        for position in memory.positions:
            shape = memory.shapes.get(bytes(frame[_HEAD_BYTES:position]))
            if shape is not None:
                memory.used = True
                break
        else:
            return None
        api_key, version, correlation_id = _unpack_head(frame)
        if api_key or version != shape.version or self._quota.enabled:
            return None
        try:
            if shape.flexible:
                size = frame[position]
                start = position + 1
                if size > 127:
                    size, start = uvarint_rest(frame, start, size)
                size -= 1
            else:
                (size,) = unpack_size(frame, position)
                start = position + 4
        except (IndexError, MalformedMessage, struct.error):
            return None
        end = start + size
        if size <= 0 or end + shape.tail_bytes != len(frame) or frame[end:] != shape.tail:
            return None
        services = self._services
        manager = services.replica_manager
        topic_id = shape.topic_id
        name: Any = shape.name if topic_id is None else manager.topic_names.get(topic_id)
        partition = manager.partitions.get((name, shape.partition_index))
        if partition is None or not partition.commits_on_append or partition.flush_due_offset:
            return None
        try:
            # Also with acks=all: no other replica has to confirm what commits on append.
            info = partition.append(frame[start:end], ACKS_LEADER, services.clock.time_ms())
        except KafkaError as error:
            return self._refused(connection, frame, partition, error)
        return [
            shape.pack(
                correlation_id,
                shape.head,
                info.first_offset,
                info.log_append_time_ms,
                info.log_start_offset,
                shape.rest,
            )
        ]

    def _refused(
        self, connection: Connection, frame: memoryview, partition: Partition, error: KafkaError
    ) -> list[bytes]:
        from odradek.broker.handlers import produce

        api_key, version, correlation_id, client_id, start = parse_request_header(frame)
        request = decoder(ProduceRequest, version)(frame, start)[0]
        context = RequestContext(api_key, version, correlation_id, client_id, connection)
        result = refused(partition, error)
        response = produce.response_to_one(self._services, context, request, [result]).get()
        assert response is not None
        return [_encoded(version, correlation_id, response)]

    def learn(
        self, context: RequestContext, frame: memoryview, request: Any, reply: list[Any]
    ) -> None:
        """Remembers a request that the handler answered with `reply`, if its like can be told."""
        topics = request.topic_data
        if (
            len(topics) != 1
            or len(topics[0].partition_data) != 1
            or request.transactional_id is not None
            or request.acks not in (ACKS_LEADER, ACKS_ALL)
            or context.api_version < ZSTD_VERSION
        ):
            return
        partition = self._partition(context.api_version, topics[0])
        if partition is None or not partition.commits_on_append or self._quota.enabled:
            return
        connection = context.connection
        memory: Memory | None = connection.memory
        if memory is None:
            memory = connection.memory = Memory()
            connection.on_close.append(partial(self._budget.release, memory))
        if len(memory.shapes) < SHAPES_MAX:
            size = _remember(memory, context.api_version, frame, request, reply)
            if size:
                self._budget.acquire(memory, size)

    def _partition(self, version: int, topic: Any) -> Partition | None:
        manager = self._services.replica_manager
        name = (
            manager.topic_names.get(topic.topic_id) if version >= TOPIC_ID_VERSION else topic.name
        )
        return (
            None if name is None else manager.partitions.get((name, topic.partition_data[0].index))
        )


def _remember(
    memory: Memory, version: int, frame: memoryview, request: ProduceRequest, reply: list[Any]
) -> int:
    """Add the shape of the request, when both it and its answer are as the codec writes them.

    Return how many bytes the shape takes, 0 if nothing was added.
    """
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    around = _around_records(version, frame, request)
    template = _template(version, topic, data.index)
    if around is None or template is None:
        return 0
    position, tail = around
    head, rest = template
    if position > PREFIX_BYTES_MAX:
        return 0
    shape = _Shape(
        version=version,
        flexible=_is_flexible(version),
        topic_id=topic.topic_id if version >= TOPIC_ID_VERSION else None,
        name=topic.name,
        partition_index=data.index,
        tail=tail,
        tail_bytes=len(tail),
        pack=struct.Struct(f">i{len(head)}sqqq{len(rest)}s").pack,
        head=head,
        rest=rest,
    )
    response = b"".join(reply)
    numbers = response[_CORRELATION_ID_BYTES + len(head) : len(response) - len(rest)]
    if len(numbers) != _NUMBERS.size:
        return 0
    (correlation_id,) = unpack_size(response, 0)
    if response != shape.pack(correlation_id, head, *_NUMBERS.unpack(numbers), rest):
        return 0  # an error, or more than three numbers to tell
    if position not in memory.positions:
        if len(memory.positions) >= LENGTHS_MAX:
            return 0
        memory.positions.append(position)
    prefix = bytes(frame[_HEAD_BYTES:position])
    if prefix in memory.shapes:
        return 0
    memory.shapes[prefix] = shape
    return SHAPE_OBJECTS_BYTES + len(prefix) + len(tail) + len(head) + len(rest)


def _is_flexible(version: int) -> bool:
    return version >= FLEXIBLE_FROM[ApiKey.PRODUCE]


def _around_records(
    version: int, frame: memoryview, request: ProduceRequest
) -> tuple[int, bytes] | None:
    """Where the length of the records stands, and what follows them; None when the client wrote
    something that the codec would not have written.
    """
    records: Any = request.topic_data[0].partition_data[0].records
    chunks: list[Any] = []
    encoder(ProduceRequest, version)(request, chunks.append)
    at = next((at for at, chunk in enumerate(chunks) if chunk is records), None)
    if at is None:
        return None
    head, tail = b"".join(chunks[:at]), b"".join(chunks[at + 1 :])
    start = parse_request_header(frame)[-1]
    end = start + len(head) + len(records)
    if frame[start : start + len(head)] != head or frame[end:] != tail:
        return None
    length_bytes = len(uvarint(len(records) + 1)) if _is_flexible(version) else 4
    return start + len(head) - length_bytes, tail


def _template(version: int, topic: Any, index: int) -> tuple[bytes, bytes] | None:
    """The response before and behind its three numbers, without the correlation id; None for a
    version that does not have the three.
    """
    answer = PartitionProduceResponse(index, 0, *_MARKS)
    response = ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [answer])])
    data = _encoded(version, 0, response)
    at = data.find(_NUMBERS.pack(*_MARKS))
    if at < 0:
        return None
    return data[_CORRELATION_ID_BYTES:at], data[at + _NUMBERS.size :]


def _encoded(version: int, correlation_id: int, response: ProduceResponse) -> bytes:
    chunks: list[Any] = [response_header(ApiKey.PRODUCE, version, correlation_id)]
    encoder(ProduceResponse, version)(response, chunks.append)
    return b"".join(chunks)
