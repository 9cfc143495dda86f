"""Fast path for Fetch requests that repeat the previous one of their connection.

A consumer that reads one partition sends the same bytes again and again, except for three numbers:
correlation id, session epoch and fetch offset. Its responses differ in the correlation id, three
offsets and the size of the records. A connection remembers the other bytes as its *fetch shape*. A
frame that matches the shape is not decoded, and its response is not encoded. Between two fetches
the consumer moves a megabyte through the processor's caches, so the broker's code and objects are
no longer there. Most of the time of a fetch in Python is the time to load them again, and this path
needs half as many. It saves a fifth of the broker's CPU time for a fetch of 1 MB, `sendfile`
included (measured: 0.81 of the general path's).

As for Produce (`odradek.broker.requests.repeated_produce`), the general path learns the shape and
executes each request that needs a further decision. Examples are an error, a wait for min.bytes, a
read from the disk, aborted transactions, a quota, and a fetch session with other partitions. Both
paths read with `Partition.read` and change the session with the same methods. Tests change every
byte of a frame and compare both paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.errors import KafkaError
from odradek.protocol.fetch_session import FINAL_EPOCH
from odradek.protocol.framing import pack_size
from odradek.protocol.wire import uvarint
from odradek.replication.fetch_data import ColdRead

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext, Services
    from odradek.broker.requests.fetch_shapes import FetchShape
    from odradek.net.connection import Chunks, Connection
    from odradek.protocol.codec import Message

LEARN_AFTER_MAX = 64
"""Requests of other shapes after which a connection learns again. It is 1 after the first shape and
doubles with each further one up to this value. Learning costs as much as executing some ten
requests, and a consumer may read several partitions in turn.
"""


class RepeatedFetch:
    """The executor of fetch requests that match the shape of their connection.

    It also learns the shapes. Used on the event loop only.
    """

    __slots__ = ("_quota", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._quota = services.quotas.fetch

    def respond(  # noqa: C901 - each further call would cost CPU time on this path
        self, connection: Connection, frame: memoryview
    ) -> Chunks | None:
        """Execute the request and return the chunks of its response.

        Return None if the general path must execute the request. Nothing has changed then.
        """
        shape: FetchShape | None = connection.fetch_shape  # type: ignore[assignment]
        services = self._services
        if shape is None or shape.generation != services.replica_manager.generation:
            connection.fetch_shape = None
            return None
        if len(frame) != shape.frame_bytes:
            return None
        api, number, before_epoch, epoch, before_offset, offset, rest = shape.unpack(frame)
        if (api, before_epoch, before_offset, rest) != shape.constant:
            return None
        session, known = None, shape.known
        if known is None:
            if epoch != FINAL_EPOCH:
                return None
        else:
            session = services.fetch_sessions.sessions.get(shape.session_id)
            if (
                session is None
                or len(session.partitions) != 1
                or known not in session.partitions.values()
            ):
                connection.fetch_shape = None
                return None
            if epoch != session.epoch:
                return None
        partition, requested = shape.partition, shape.requested
        # Most requests of a consumer at the end of the log find no records and have to wait.
        if offset >= partition.log.high_watermark or self._quota.enabled:
            return None
        try:
            data = partition.read(
                offset,
                shape.max_bytes,
                True,
                shape.isolation,
                requested.leader_epoch,
                requested.last_fetched_epoch,
            )
        except (KafkaError, ColdRead):
            return None
        region = data.region
        if region is None:
            return None
        if region.length < shape.min_bytes or data.aborted_transactions:
            region.close()
            return None
        if session is not None and known is not None:
            requested.fetch_offset = offset
            session.update((requested,), ())
            services.fetch_sessions.use(session)
            session.includes(known, data)
        length = region.length
        limits = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
        return [
            shape.pack(number, shape.head, *limits, shape.middle),
            uvarint(length + 1) if shape.flexible else pack_size(length),
            region,
            shape.tail,
        ]

    def learn(
        self,
        connection: Connection,
        context: RequestContext,
        frame: memoryview,
        request: Message,
        response: Message,
        reply: Chunks,
    ) -> None:
        """Remember the shape of a request that the general path has executed, if it has one.

        Args:
            connection: The connection that received the request.
            context: The context of the request.
            frame: The bytes of the request.
            request: The decoded request.
            response: Its response.
            reply: The chunks of the response.
        """
        known: FetchShape | None = connection.fetch_shape  # type: ignore[assignment]
        if known is not None:
            known.misses += 1
            if known.misses < known.learn_after:
                return
            known.misses = 0
        from odradek.broker.requests.fetch_shapes import shape_of

        shape = shape_of(self._services, context, frame, request, response, reply)
        if shape is not None:
            if known is not None:
                shape.learn_after = min(2 * known.learn_after, LEARN_AFTER_MAX)
            connection.fetch_shape = shape
