"""Fast path for Produce requests that repeat an earlier one of their connection.

A producer sends the same bytes around its records again and again: client id, acks, timeout,
topics, partitions. A connection remembers these bytes as a *shape*. Shapes are learnt from requests
that took the general path. A frame with the same bytes at the same positions is executed without
being decoded. Its response differs from the earlier one in three numbers for each partition, so it
is not encoded either. For one partition this saves half of the broker's CPU time for a request
(measured: 8.5 instead of 17.4 us). The shape comes from the codec and is compared with the frame.
This module does not know the layout of any version. A producer with 12 partitions may send any of
4,095 combinations of them, so the parts between two partitions are learnt separately.

This and `odradek.broker.requests.repeated_fetch` are the only exceptions to the rule that a request
has one path. The general path executes every request that needs a further check: a due flush, a
transaction, a quota. With acks=all and other replicas the request waits as on the general path
(`ReplicaManager.wait_committed`). A shape belongs to one value of `ReplicaManager.generation`,
which increases with every change of topics, leadership and configs. Shapes of another generation
are forgotten. If the log refuses a batch, the request stays on this path, because the log may
already have written into the batch. The handler then makes the response, and so it does if the
records are not committed. Tests change every byte of a frame and compare both paths.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.requests.apis import PRODUCE_TOPIC_ID_FROM, PRODUCE_ZSTD_FROM
from odradek.broker.requests.context import RequestContext
from odradek.errors import ErrorCode, KafkaError
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.codec import Message, decoder
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.framing import FRAME_SIZE_BYTES, unpack_size
from odradek.protocol.headers import REQUEST_NUMBERS, parse_request_header
from odradek.protocol.wire import uvarint_rest
from odradek.records.batch import LOW_ATTRIBUTES_POSITION, TRANSACTIONAL_MASK
from odradek.replication.partition import ACKS_ALL, ACKS_LEADER
from odradek.replication.record_append import AppendEntry, AppendResult, RecordAppend, refused
from odradek.results import PendingResult, Result
from odradek.slicing import SLICE_MS, sliced

if TYPE_CHECKING:
    from odradek.broker.requests.context import Services
    from odradek.broker.requests.produce_shapes import LinksByTopic, ProduceShape
    from odradek.broker.requests.shape_budget import ShapeBudget
    from odradek.log.log_append_info import LogAppendInfo
    from odradek.net.connection import Chunks, Connection
    from odradek.protocol.messages.produce_request import ProduceRequest
    from odradek.replication.partition import Partition

SHAPES_MAX = 256
"""Maximum number of shapes that one connection remembers. A shape with one partition takes some
700 bytes. Requests with several partitions of one topic have one shape for each pair of a number of
partitions and a first partition.
"""
LINKS_MAX = 1_024
"""Number of links at which a connection forgets its shapes before it learns the next one."""
LEARN_EVERY = 64
"""A connection that has `SHAPES_MAX` shapes learns from one in `LEARN_EVERY` unknown requests only.
Learning a shape costs as much as executing some ten requests.
"""
POSITIONS_MAX = 4
"""Maximum number of different positions of the first records in the frames of one connection. The
position depends on the length of the topic's name.
"""
PARTITIONS_MAX = 50
"""Maximum number of partitions of a request that is remembered."""
_HEAD_BYTES = REQUEST_NUMBERS.size
_unpack_head = REQUEST_NUMBERS.unpack_from


@dataclass(slots=True, eq=False)
class RememberedShapes:
    """The shapes of one connection.

    Attributes:
        shapes: Each shape by its prefix: the bytes from the client id up to the length of the first
            records.
        generation: The generation of `ReplicaManager` in which the shapes were learnt.
        links: The parts between two partitions, which the shapes share.
        link_count: The number of links.
        positions: The positions in the frame at which that length begins, one for each length of
            prefix.
        misses: Number of requests without a shape that arrived when the connection had `SHAPES_MAX`
            shapes.
        used: See `ShapeHolder`.
    """

    shapes: dict[bytes, ProduceShape] = field(default_factory=dict)
    positions: list[int] = field(default_factory=list)
    generation: int = -1
    links: LinksByTopic = field(default_factory=dict)
    link_count: int = 0
    misses: int = 0
    used: bool = False

    def forget(self) -> None:
        """Forget all shapes."""
        self.shapes.clear()
        self.positions.clear()
        self.links.clear()
        self.link_count = 0

    def remove(self, prefix: bytes) -> int:
        """Forget one shape and return its size in bytes; 0 if there is none."""
        shape = self.shapes.pop(prefix, None)
        if shape is None:
            return 0
        if all(each.position != shape.position for each in self.shapes.values()):
            self.positions.remove(shape.position)
        return shape.size_bytes

    def evict(self) -> int:
        """Forget a shape that was not used recently, by the CLOCK algorithm.

        The use of a shape only sets its flag `used`. The algorithm clears the flag and passes over
        the shape once.

        Returns:
            The size of the shape in bytes.
        """
        while True:
            prefix, shape = next(iter(self.shapes.items()))
            if not shape.used:
                return self.remove(prefix)
            shape.used = False
            self.shapes[prefix] = self.shapes.pop(prefix)


class _Executed(NamedTuple):
    """A request that was executed and has no response yet, with the outcomes of its appends."""

    connection: Connection
    shape: ProduceShape
    correlation_id: int
    outcomes: dict[Partition, LogAppendInfo | KafkaError]


class RepeatedProduce:
    """The executor of produce requests with remembered shapes. It also learns the shapes.

    Used on the event loop only.
    """

    __slots__ = ("_budget", "_quota", "_services")

    def __init__(self, services: Services, budget: ShapeBudget) -> None:
        self._services = services
        self._budget = budget
        self._quota = services.quotas.produce

    def respond(  # noqa: C901 - each further call would cost CPU time on this path
        self, connection: Connection, frame: memoryview
    ) -> bytes | Result[Chunks] | None:
        """Execute the request and return its response with the size of the response.

        Return a result if the records have to be committed first, or are refused. Return None if
        the general path must execute the request.
        """
        remembered: RememberedShapes = connection.remembered  # type: ignore[assignment]
        services = self._services
        if remembered.generation != services.replica_manager.generation:
            self._forget(remembered)
            return None
        for position in remembered.positions:
            shape = remembered.shapes.get(frame[_HEAD_BYTES:position].tobytes())
            if shape is not None:
                break
        else:
            return None
        remembered.used = shape.used = True
        api_key, version, correlation_id = _unpack_head(frame)
        if api_key or version != shape.version or self._quota.enabled:
            return None
        partition = shape.partition
        if partition is None:
            return self._respond_several(connection, frame, shape, correlation_id)
        # The steps of `_respond_several` without loops, because most requests have one partition.
        # The loops would make this path one microsecond slower (it takes some eight).
        try:
            if shape.flexible:
                size = frame[position]
                start = position + 1
                if size > 127:
                    # `uvarint_rest` without the call, for batches below 16 KiB.
                    more = frame[start]
                    if more <= 127:
                        size += (more << 7) - 128
                        start += 1
                    else:
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
        if partition.flush_due_offset:
            return None
        try:
            acks = ACKS_LEADER if partition.commits_on_append else shape.acks
            info = partition.append(frame[start:end], acks, services.clock.time_ms())
        except KafkaError as error:
            request = _Executed(connection, shape, correlation_id, {partition: error})
            return self._respond_later(request, {}, None)
        response = shape.pack(
            shape.response_bytes,
            correlation_id,
            shape.head,
            info.first_offset,
            info.log_append_time_ms,
            info.log_start_offset,
            shape.rest,
        )
        if shape.acks != ACKS_ALL or partition.log.high_watermark > info.last_offset:
            return response
        request = _Executed(connection, shape, correlation_id, {partition: info})
        return self._respond_later(request, {partition: info.last_offset + 1}, response)

    def _respond_several(
        self, connection: Connection, frame: memoryview, shape: ProduceShape, correlation_id: int
    ) -> bytes | Result[Chunks] | None:
        """Execute a request with several partitions and return its response, as `respond` does.

        All of the frame is checked before the first append.
        """
        at = shape.position
        partition: Partition | None = shape.first
        batches: dict[Partition, memoryview] = {}
        rests: list[bytes] = []
        try:
            for gap_bytes, links in shape.steps:
                if shape.flexible:
                    size = frame[at]
                    start = at + 1
                    if size > 127:
                        size, start = uvarint_rest(frame, start, size)
                    size -= 1
                else:
                    (size,) = unpack_size(frame, at)
                    start = at + 4
                end = start + size
                at = end + gap_bytes
                link = links.get(frame[end:at].tobytes())
                if (
                    size <= 0
                    or link is None
                    or partition is None
                    or partition.flush_due_offset
                    # A transactional batch makes the handler refuse all partitions.
                    or frame[start + LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_MASK
                ):
                    return None
                batches[partition] = frame[start:end]
                partition, rest = link
                rests.append(rest)
        except (IndexError, MalformedMessage, struct.error):
            return None
        if at != len(frame) or len(batches) != len(rests):  # a partition is repeated
            return None
        return self._append_several(connection, shape, correlation_id, batches, rests)

    def _append_several(
        self,
        connection: Connection,
        shape: ProduceShape,
        correlation_id: int,
        batches: dict[Partition, memoryview],
        rests: list[bytes],
    ) -> bytes | Result[Chunks]:
        """Append all batches, also those after a refused one.

        Appends that take longer than a time slice, for example because they roll segments, are
        continued in the next one.
        """
        clock = self._services.clock
        now_ms, ends_ms = clock.time_ms(), clock.monotonic_ms() + SLICE_MS
        outcomes: dict[Partition, LogAppendInfo | KafkaError] = {}
        required: dict[Partition, int] = {}
        is_refused = False
        numbers: list[int | bytes] = [shape.response_bytes, correlation_id, shape.head]
        for (partition, batch), rest in zip(batches.items(), rests, strict=True):
            if outcomes and not len(outcomes) & 3 and clock.monotonic_ms() > ends_ms:
                request = _Executed(connection, shape, correlation_id, outcomes)
                return sliced(self._append_others(request, batches))
            try:
                acks = ACKS_LEADER if partition.commits_on_append else shape.acks
                info = partition.append(batch, acks, now_ms)
            except KafkaError as error:
                is_refused = True
                outcomes[partition] = error
                continue
            if shape.acks == ACKS_ALL and partition.log.high_watermark <= info.last_offset:
                required[partition] = info.last_offset + 1
            outcomes[partition] = info
            numbers += (info.first_offset, info.log_append_time_ms, info.log_start_offset, rest)
        response = None if is_refused else shape.pack(*numbers)
        if response is not None and not required:
            return response
        request = _Executed(connection, shape, correlation_id, outcomes)
        return self._respond_later(request, required, response)

    def _append_others(
        self, request: _Executed, batches: dict[Partition, memoryview]
    ) -> Generator[None, None, Result[Chunks]]:
        """Append the batches without an outcome in time slices, as the general path does."""
        shape = request.shape
        clock, manager = self._services.clock, self._services.replica_manager
        append = RecordAppend(
            manager, clock.time_ms(), shape.acks, shape.timeout_ms, internal_topics_allowed=True
        )
        for partition, outcome in request.outcomes.items():
            append.include(partition, outcome)
        by_id = shape.version >= PRODUCE_TOPIC_ID_FROM
        entries = []
        for partition, batch in batches.items():
            if partition not in request.outcomes:
                topic, number = partition.topic_partition
                entries.append(AppendEntry(partition.topic_id if by_id else topic, number, batch))
        yield
        appended = yield from append.in_slices(entries, clock)
        return appended.then(partial(self._response, request, tuple(batches)))

    # --- requests that wait, or are refused in part ---

    def _respond_later(
        self, request: _Executed, required: dict[Partition, int], response: bytes | None
    ) -> Result[Chunks]:
        """Return the response when the high watermarks have reached the required offsets.

        Args:
            request: The request.
            required: The offsets after the last records.
            response: The response if no partition fails. None: one has failed already.
        """
        responded: PendingResult[Chunks] = PendingResult()

        def ready(errors: dict[Partition, ErrorCode]) -> None:
            if response is not None and not errors:
                responded.complete([response[FRAME_SIZE_BYTES:]])
            else:
                responded.follow(Result(errors).then(partial(self._failed, request)))

        if required:
            timeout_ms = request.shape.timeout_ms
            self._services.replica_manager.wait_committed(required, timeout_ms, ready)
        else:
            ready({})
        return responded

    def _failed(self, request: _Executed, errors: dict[Partition, ErrorCode]) -> Chunks:
        """Return the response of the handler to a request with failed partitions.

        Args:
            request: The request.
            errors: The errors after the append. `request.outcomes` has those of the append.
        """
        results = []
        for partition, outcome in request.outcomes.items():
            if partition in errors:
                error = KafkaError(errors[partition])
                results.append(AppendResult(None, error, partition.topic_partition))
            elif isinstance(outcome, KafkaError):
                results.append(refused(partition, outcome))
            else:
                results.append(AppendResult(outcome))
        return self._response(request, tuple(request.outcomes), results)

    def _response(
        self, request: _Executed, partitions: tuple[Partition, ...], results: list[AppendResult]
    ) -> Chunks:
        """Return the response that the handler makes of the results, one for each partition."""
        from odradek.broker.handlers import produce
        from odradek.broker.requests.produce_shapes import encoded, request_of

        connection, shape, correlation_id, _ = request
        version = shape.version
        # The response does not depend on the client id.
        context = RequestContext(ApiKey.PRODUCE, version, correlation_id, None, connection)
        message = request_of(version, shape.acks, partitions)
        response = produce.response_to(self._services, context, message, results).get()
        assert response is not None
        return [encoded(version, correlation_id, response)]

    # --- learning ---

    def learn(
        self,
        connection: Connection,
        context: RequestContext,
        frame: memoryview,
        request: Message | None,
        reply: Sequence[object],
    ) -> None:
        """Remember the shape of a request that the general path has executed, if it has one.

        Args:
            connection: The connection that received the request.
            context: The context of the request.
            frame: The bytes of the request.
            request: The decoded request. None if it waits, because its records are released.
            reply: The chunks of its response. None are known of a request that waits.
        """
        remembered: RememberedShapes | None = connection.remembered  # type: ignore[assignment]
        if remembered is not None and len(remembered.shapes) >= SHAPES_MAX:
            remembered.misses += 1
            if remembered.misses % LEARN_EVERY:
                return
        from odradek.broker.requests.produce_shapes import shape_of
        from odradek.protocol.messages.produce_request import ProduceRequest

        if request is None:
            start = parse_request_header(frame)[-1]
            request = decoder(ProduceRequest, context.api_version)(frame, start)[0]
        assert isinstance(request, ProduceRequest)
        partitions = self._partitions(context.api_version, request)
        if not partitions:
            return
        if remembered is None:
            remembered = connection.remembered = RememberedShapes()
            connection.on_close.append(partial(self._budget.release, remembered))
        generation = self._services.replica_manager.generation
        if remembered.generation != generation or remembered.link_count >= LINKS_MAX:
            self._forget(remembered)
            remembered.generation = generation
        response = b"".join(reply)  # type: ignore[arg-type]
        version, links = context.api_version, remembered.links
        found = shape_of(version, frame, request, response, partitions, links)
        if found is not None:
            self._remember(remembered, *found)

    def _partitions(self, version: int, request: ProduceRequest) -> tuple[Partition, ...]:
        """Return the partitions of a request whose shape may be remembered, otherwise none."""
        if (
            request.transactional_id is not None
            or request.acks not in (ACKS_LEADER, ACKS_ALL)
            or version < PRODUCE_ZSTD_FROM
            or self._quota.enabled
        ):
            return ()
        manager = self._services.replica_manager
        found: dict[Partition, None] = {}
        count = 0
        for topic in request.topic_data:
            key = topic.topic_id if version >= PRODUCE_TOPIC_ID_FROM else topic.name
            for data in topic.partition_data:
                partition = manager.find(key, data.index)
                if partition is None or count == PARTITIONS_MAX:
                    return ()
                if not partition.acknowledges_on_append:  # a flush may be due
                    return ()
                found[partition] = None
                count += 1
        return tuple(found) if len(found) == count else ()

    def _forget(self, remembered: RememberedShapes) -> None:
        self._budget.release(remembered)
        remembered.forget()

    def _remember(
        self, remembered: RememberedShapes, prefix: bytes, shape: ProduceShape, links_added: int
    ) -> None:
        from odradek.broker.requests.produce_shapes import LINK_BYTES

        budget, shapes = self._budget, remembered.shapes
        budget.release_bytes(remembered, remembered.remove(prefix))
        if len(shapes) >= SHAPES_MAX:
            budget.release_bytes(remembered, remembered.evict())
        if shape.position not in remembered.positions:
            if len(remembered.positions) >= POSITIONS_MAX:
                oldest = remembered.positions[0]
                for other in [key for key, each in shapes.items() if each.position == oldest]:
                    budget.release_bytes(remembered, remembered.remove(other))
            remembered.positions.append(shape.position)
        shapes[prefix] = shape
        remembered.link_count += links_added
        budget.acquire(remembered, shape.size_bytes + LINK_BYTES * links_added)
