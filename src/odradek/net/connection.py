"""One client's connection: frames in, execution in order, responses out in the same order.

Every request takes this path, from the received bytes to the bytes handed to the socket, so the
path makes few function calls. `buffer_updated` takes the complete frames of a read in one loop,
until its time slice ends. Responses that are ready together are sent in one write.

`dispatch(connection, frame)` returns a `Result` of the chunks of the response, without its size.

* While the result is not executed, the next request of the connection does not start.
* An executed result may be done later. The next request may start before that.
* An empty list means that there is no response (acks=0).
* File regions among the chunks are closed by the connection, also when they are not sent.
* CloseConnection, raised or as the error of the result, is logged. The connection is closed after
  the responses to earlier requests.

A response that is complete when `dispatch` returns may be returned as the list of its chunks, or as
bytes that begin with its size. These are measured exceptions: a `Result` would cost a repeated
produce request one more call, and a list four.

`frame` is a writable view of a receive buffer, valid until the request is executed. Chunks of a
response must not be views of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from odradek.collector import break_cycle
from odradek.environment.network import StreamSocket, plain_address
from odradek.environment.timers import Timers
from odradek.net.budget import MemoryBudget, QueuedResponses, ReceivedAhead, UnsentResponses
from odradek.net.limits import (
    CLAIM_BYTES,
    FLUSH_BYTES,
    IN_FLIGHT_BYTES,
    IN_FLIGHT_FRAME_BYTES_MAX,
    SLICE_REQUESTS_MAX,
    WRITE_PIECE_BYTES,
    NetLimits,
)
from odradek.net.receive import ReceiveBuffer, Scratch
from odradek.net.sender import BYTES, Chunk, Sender, close_regions
from odradek.net.session import (
    ANONYMOUS,
    PLAIN_SOCKET,
    SecurityProtocol,
    Session,
    TransportKind,
)
from odradek.protocol.framing import FRAME_SIZE_BYTES, pack_size, unpack_size
from odradek.results import Abandoned, Result
from odradek.slicing import SLICE_MS

logger = logging.getLogger(__name__)


Chunks = list[Chunk]
Reply = bytes | Chunks | Result[Chunks]
"""A response from the dispatcher: complete with its size, its chunks, or a result that will have
them.
"""
Dispatch = Callable[["Connection", memoryview], Reply]


def without_size(reply: Reply) -> Chunks | Result[Chunks]:
    """Return a reply without the size in front of a complete response."""
    return [reply[FRAME_SIZE_BYTES:]] if isinstance(reply, bytes) else reply


# Reasons why requests of a connection may not start now, as bits of `_hold`. 0: they may.
_EXECUTING = 1  # The previous request is being executed.
_UNSENT = 2  # Responses wait until the peer has received earlier ones.
_IN_FLIGHT = 4  # Too many responses are pending, or too many bytes of them wait.
_MEMORY = 8  # A frame waits for its share of the memory for requests.
_CLOSING = 16  # No further request will start.
_SLICE_ENDED = 32  # Other connections continue first.
_MUTED = 64  # The client has exceeded a quota.

_COMPLETE = (bytes, list)
_SLICE_REQUESTS = range(SLICE_REQUESTS_MAX)


class CloseConnection(Exception):
    """A request that has no response: the connection is closed and `reason` is logged."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RememberedRequests(Protocol):
    """The requests of one connection that its dispatcher remembers, for its own use only."""

    def forget(self) -> None:
        """Forget all of them."""


@dataclass(slots=True)
class Shared:
    """The objects that all connections of a server share. Owned by the server's loop."""

    loop: asyncio.AbstractEventLoop
    monotonic_ms: Callable[[], float]
    timers: Timers
    dispatch: Dispatch
    limits: NetLimits
    budget: MemoryBudget
    queued: QueuedResponses
    unsent: UnsentResponses
    ahead: ReceivedAhead
    scratch: Scratch
    executor: Executor | None = None
    connections: dict[Connection, None] = field(default_factory=dict)
    executing: dict[Result[Chunks], None] = field(default_factory=dict)
    on_lost: Callable[[Connection], None] | None = None


class Connection(asyncio.BufferedProtocol):
    """Protocol of one accepted socket. All of it runs on the event loop. Handlers only read it.

    `_queue` holds the responses that were not sent yet, oldest first: lists of chunks, and results
    that were not done when `dispatch` returned. `_in_flight` has the bytes that are counted for
    each of these results. No request starts unless `_hold` is 0. The bytes that arrive then are
    kept until the receive buffer is full, and then reading stops, too.
    """

    __slots__ = (
        "_active",
        "_charged",
        "_closing_since_ms",
        "_dispatch",
        "_eof",
        "_hold",
        "_idle_since_ms",
        "_in_flight",
        "_is_ahead",
        "_lent",
        "_mutes",
        "_queue",
        "_queued_bytes",
        "_reading",
        "_receive",
        "_request_bytes_max",
        "_resuming",
        "_security_protocol",
        "_sender",
        "_shared",
        "_socket",
        "_stopping",
        "_transport",
        "_transport_kind",
        "client_software",
        "closed",
        "counted_as",
        "fetch_shape",
        "get_buffer",
        "listener_name",
        "local_address",
        "on_close",
        "peer_address",
        "remembered",
        "session",
    )

    _transport: asyncio.Transport
    _sender: Sender
    session: Session
    get_buffer: Callable[[int], memoryview]  # type: ignore[assignment]

    def __init__(
        self,
        shared: Shared,
        listener_name: str,
        sock: StreamSocket | None,
        *,
        security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        transport_kind: TransportKind = PLAIN_SOCKET,
    ) -> None:
        self._shared = shared
        self._socket = sock
        self._security_protocol = security_protocol
        self._transport_kind = transport_kind
        self._dispatch = shared.dispatch
        self._request_bytes_max = shared.limits.request_bytes_max
        self._receive = ReceiveBuffer(shared.scratch)
        self.get_buffer = self._receive.get_buffer
        self._queue: deque[Chunks | Result[Chunks]] = deque()
        self._in_flight: deque[int] = deque()
        self._queued_bytes = 0
        self._charged = 0
        self._lent = 0
        self._is_ahead = False
        self._hold = 0
        self._mutes = 0
        self._reading = True
        self._resuming = False
        self._stopping = False
        self._eof = False
        self.listener_name = listener_name
        self.local_address = ("", 0)
        self.peer_address = ("", 0)
        self.client_software: str | None = None
        self.closed = False
        self._active = True
        self._idle_since_ms = 0.0
        self._closing_since_ms: float | None = None
        self.counted_as = ""
        self.on_close: list[Callable[[], object]] = []
        self.remembered: RememberedRequests | None = None
        # The shape of a fetch that the dispatcher remembers, for its own use only.
        self.fetch_shape: object | None = None

    def __repr__(self) -> str:
        return f"<connection {self.peer_address} to {self.local_address}>"

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        shared = self._shared
        self._transport = transport  # type: ignore[assignment]
        self.local_address = plain_address(transport.get_extra_info("sockname"))
        self.peer_address = plain_address(transport.get_extra_info("peername"))
        self.session = Session(
            self.listener_name,
            self._security_protocol,
            ANONYMOUS,
            self.peer_address[0],
            self.local_address,
        )
        kind = self._transport_kind
        self._transport.set_write_buffer_limits(high=kind.write_buffer_high)
        self._sender = Sender(
            shared.loop,
            self._transport,
            self._socket if kind.sendfile else None,
            executor=shared.executor,
            on_idle=self._sent,
            on_failure=self.abort,
        )
        shared.connections[self] = None

    def buffer_updated(  # noqa: C901, PLR0915 - calls are what this path costs
        self, nbytes: int
    ) -> None:
        """Execute the frames that are complete with the `nbytes` bytes just received."""
        receive = self._receive
        view = receive.view
        start = pos = receive.start
        end = receive.end + nbytes
        self._active = True
        queue = self._queue
        out: Chunks = []
        out_bytes, ends_ms = 0, 0.0
        reply: Reply = b""
        try:
            for number in _SLICE_REQUESTS:
                if self._hold or end - pos < 4:
                    break
                (size,) = unpack_size(view, pos)
                if not 0 <= size <= self._request_bytes_max:
                    raise CloseConnection(
                        f"invalid frame size {size}, the limit is {self._request_bytes_max}"
                    )
                next_pos = pos + 4 + size
                if next_pos > end:
                    break
                if not ends_ms:
                    if next_pos < end:  # a lone request does not need the time
                        ends_ms = self._shared.monotonic_ms() + SLICE_MS
                elif (
                    # Repeated produce requests take 10 us each, unless they roll segments.
                    (not number & 1 or reply.__class__ is not bytes)
                    and self._shared.monotonic_ms() > ends_ms
                ):
                    self._hold |= _SLICE_ENDED
                    break
                reply = self._dispatch(self, view[pos + 4 : next_pos])
                pos = next_pos
                if reply.__class__ in _COMPLETE and not queue:
                    if reply.__class__ is bytes:
                        out.append(reply)
                        out_bytes += len(reply)
                    elif reply:
                        size = sum(map(len, reply))  # type: ignore[arg-type]
                        out += (pack_size(size), *reply)
                        out_bytes += size
                    if out_bytes < FLUSH_BYTES:
                        continue
                if out:
                    self._write(out, out_bytes)
                    out, out_bytes = [], 0
                if queue or reply.__class__ not in _COMPLETE:
                    self._enqueue(reply, size)
            else:
                self._hold |= _SLICE_ENDED
        except Exception as error:  # noqa: BLE001 - logged; closes this connection only
            self._refuse(out, error)
            return
        if out:  # `_write`, without the call
            for chunk in out:
                if chunk.__class__ not in BYTES:
                    self._write(out, out_bytes)
                    break
            else:
                self._transport.write(b"".join(out))  # type: ignore[arg-type]
        if pos == end and not receive.apart and not self._hold:
            receive.end = 0
            receive.tail = b""
        else:
            self._keep(start, pos, end)

    def eof_received(self) -> bool:
        """Execute the requests that were received, then close: the peer sends nothing further."""
        self._eof = True
        if self._receive.kept and self._hold and not self._hold & _CLOSING:
            return True
        self._hold = self._hold & ~_MUTED | _CLOSING
        self._stopping = True
        return self._sender.busy  # then `_finish` closes, after the rest of the responses

    def pause_writing(self) -> None:
        self._hold |= _UNSENT
        self._sender.paused = True
        waiting = self._transport.get_write_buffer_size() + self._sender.unsent_bytes
        self._shared.unsent.add(self, waiting)

    def resume_writing(self) -> None:
        self._active = True
        self._shared.unsent.remove(self)
        if self._sender.busy:
            self._sender.resume()
        else:
            self._sender.paused = False
            self._sent()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            logger.debug("%r lost: %s", self, exc)
        shared = self._shared
        self.closed = True
        self._hold |= _CLOSING
        break_cycle(self._transport)
        self._receive.clear()
        shared.ahead.remove(self)
        self._sender.drop()
        shared.budget.forget(self)
        shared.unsent.remove(self)
        shared.queued.forget(self)
        if not self._hold & _EXECUTING:
            self._uncharge()
        self._drop_responses()
        shared.connections.pop(self, None)
        for callback in self.on_close:
            try:
                callback()
            except Exception:
                logger.exception("%r: a callback on close failed. The connection is closed", self)
        if shared.on_lost is not None:
            shared.on_lost(self)

    # Received bytes.

    def _keep(self, start: int, pos: int, end: int) -> None:
        """Keep the bytes from `pos` to `end`. The frames from `start` to `pos` were taken."""
        receive = self._receive
        ahead = self._shared.ahead
        is_scarce = ahead.used > ahead.scarce_above
        if pos > start:
            if self._hold & _EXECUTING:
                self._lent = receive.lend()
            else:
                self._uncharge()
        if pos == end or self._hold & _CLOSING:
            receive.clear()
        elif self._hold or not self._keep_torn(pos, end):
            receive.keep_waiting(pos, end, is_scarce)
        if receive.ahead:
            self._is_ahead = True
            ahead.keep(self, receive.ahead, renewed=pos > start)
        elif self._is_ahead:
            self._is_ahead = False
            ahead.remove(self)
        if self._reading and (receive.full or (is_scarce and self._hold)):
            self._reading = False
            self._transport.pause_reading()
        if self._hold & _SLICE_ENDED:
            self._release(_SLICE_ENDED)

    def _keep_torn(self, pos: int, end: int) -> bool:
        """Keep the first bytes of a frame. Return False if it has to wait for memory."""
        needed = self._receive.needed(pos, end)
        charged = self._charged
        if charged < needed and charged <= end - pos:
            step = min(needed, end - pos + CLAIM_BYTES) - charged
            if not self._shared.budget.acquire(self, step, charged):
                self._hold |= _MEMORY
                return False
            self._charged += step
        self._receive.keep_torn(pos, end, needed, self._charged)
        return True

    @property
    def held_by_broker(self) -> bool:
        """`ReceivedAhead`: a request is executed, or waits for memory or for the end of a mute."""
        return bool(self._hold & (_EXECUTING | _MEMORY | _MUTED))

    def memory_granted(self, size: int) -> None:
        """`MemoryBudget`: the memory of the frame that waited is charged."""
        self._charged += size
        self._release(_MEMORY)

    def _uncharge(self) -> None:
        if self._charged:
            charged, self._charged = self._charged, 0
            self._shared.budget.release(charged)

    def mute(self, seconds: float) -> None:
        """Start no request for `seconds`, but send responses. The mute that ends last counts."""
        self._hold |= _MUTED
        self._mutes += 1
        self._shared.timers.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self._mutes -= 1
        if not self._mutes and not self.closed:
            self._release(_MUTED)

    def _release(self, why: int) -> None:
        """Clear the reason `why`. Requests continue in the next iteration of the event loop."""
        self._hold &= ~why
        if self._hold or self._resuming:
            return
        if self._receive.kept or not self._reading or self._stopping or self._eof:
            self._resuming = True
            self._shared.loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._resuming = False
        if self.closed:
            return
        if self._hold:
            if self._hold & _CLOSING:
                self._finish()  # it was closed in the meantime, and waited for this call
            return
        receive = self._receive
        if receive.kept:
            self.get_buffer(-1)
            self.buffer_updated(0)
        if self._eof and not self._hold:
            self.abort(None)
        elif self._stopping:
            self._finish()
        elif not self._reading and not receive.full and not self._hold & _CLOSING:
            self._reading = True
            self._transport.resume_reading()

    # Executed requests and their responses.

    def _enqueue(self, reply: Reply, frame_bytes: int) -> None:
        """Queue a response that is not ready, or that has to wait for an earlier one."""
        queue = self._queue
        if isinstance(reply, bytes):
            reply = [reply[FRAME_SIZE_BYTES:]]
        if isinstance(reply, list):
            if reply:
                queue.append(reply)
                self._count(reply)
        else:
            queue.append(reply)
            in_flight = IN_FLIGHT_BYTES + min(frame_bytes, IN_FLIGHT_FRAME_BYTES_MAX)
            self._in_flight.append(in_flight)
            self._shared.queued.add(in_flight)
            call_soon = self._shared.loop.call_soon
            if not reply.executed:
                self._hold |= _EXECUTING
                self._shared.executing[reply] = None
                # Results call back in the middle of an append or of a coordinator's work.
                reply.on_executed(partial(call_soon, self._executed, reply))
            if reply.done:
                self._ready(reply)
                self._drain()
            else:
                reply.on_done(self._ready)
        self._limit()

    def _count(self, chunks: Chunks) -> None:
        size = _memory_bytes(chunks)
        self._queued_bytes += size
        self._shared.queued.add(size)

    def _uncount(self, size: int, results: int) -> None:
        """Subtract `size` bytes of responses, and the first `results` results, from the queue."""
        self._queued_bytes -= size
        for _ in range(results):
            size += self._in_flight.popleft()
        self._shared.queued.remove(size)

    def _limit(self) -> None:
        limits = self._shared.limits
        if (
            len(self._queue) >= limits.requests_in_flight_max
            or self._queued_bytes >= limits.response_bytes_queued_max
        ):
            self._hold |= _IN_FLIGHT
        elif self._queue and self._shared.queued.full:
            self._hold |= _IN_FLIGHT
            self._shared.queued.hold(self)
        elif self._hold & _IN_FLIGHT:
            self._release(_IN_FLIGHT)

    def queue_released(self) -> None:
        """`QueuedResponses`: there is room for queued responses again."""
        if not self.closed:
            self._limit()

    def _executed(self, reply: Result[Chunks]) -> None:
        """Handle the end of a request's execution: the next request may start."""
        self._shared.executing.pop(reply, None)
        self._uncharge()
        if self._lent:
            lent, self._lent = self._lent, 0
            self._shared.scratch.take_back(lent)
        if not self.closed:
            self._hold &= ~_EXECUTING
            self._drain()

    def _ready(self, reply: Result[Chunks]) -> None:
        """Count a response that is ready. The next iteration of the loop sends it (`_enqueue`)."""
        queue = self._queue
        if not queue or self.closed:
            _discard(reply)
            return
        if reply.completed:
            self._count(reply.value)
            self._limit()
        if queue[0] is reply:
            self._shared.loop.call_soon(self._drain)

    def _drain(self) -> None:
        """Send the responses that are ready at the front of the queue."""
        if self.closed:
            return
        queue = self._queue
        out: Chunks = []
        out_bytes = sent = results = 0
        while queue and not self._hold & _UNSENT:
            reply = queue[0]
            if isinstance(reply, list):
                chunks = reply
            elif not reply.done:
                break
            elif reply.error is not None:
                self._drop_responses()  # the client would match them to the wrong requests
                self._refuse(out, reply.error)
                return
            else:
                chunks = reply.value
                results += 1
            queue.popleft()
            if not chunks:
                continue
            sent += _memory_bytes(chunks)
            size = sum(map(len, chunks))
            out += (pack_size(size), *chunks)
            out_bytes += size
            if out_bytes >= FLUSH_BYTES:
                self._write(out, out_bytes)
                out, out_bytes = [], 0
        if out:
            self._write(out, out_bytes)
        self._uncount(sent, results)
        self._continue_after_responses()

    def _continue_after_responses(self) -> None:
        """Start further requests, or close, after responses have left the queue."""
        self._limit()
        if self._hold & _CLOSING:
            self._finish()
        else:
            self._release(0)

    def _drop_responses(self) -> None:
        """Release the queued responses. A request that is being executed is executed to its end."""
        queued = list(self._queue)
        self._queue.clear()
        self._hold &= ~_IN_FLIGHT  # or `_finish` would wait for the queue forever
        self._uncount(self._queued_bytes, len(self._in_flight))
        for reply in queued:
            if isinstance(reply, list):
                close_regions(reply)
            elif reply.done:
                _discard(reply)
            else:
                reply.on_executed(reply.cancel)

    def _write(self, out: Chunks, size: int) -> None:
        """Hand chunks of `size` bytes to the socket. Called only while nothing waits there."""
        if size <= WRITE_PIECE_BYTES:
            for chunk in out:
                if chunk.__class__ not in BYTES:  # a region
                    break
            else:
                self._transport.write(b"".join(out))  # type: ignore[arg-type]
                return
        self._sender.send(out, size)
        if self._sender.busy:
            self._hold |= _UNSENT

    def _sent(self) -> None:
        """Continue after the peer has received all bytes that were written."""
        if self._sender.busy or self._sender.paused:
            return
        self._hold &= ~_UNSENT
        self._drain()

    # Closing.

    def _refuse(self, out: Chunks, error: BaseException) -> None:
        """Close the connection for a request without a response. Send earlier responses first."""
        try:
            if out:
                self._write(out, FLUSH_BYTES)  # fewer, or they would have been written before
        except Exception:
            logger.exception("%r: a response cannot be sent. The connection is closed", self)
            self.abort(None)
        if isinstance(error, CloseConnection):
            self.close(error.reason)
        elif isinstance(error, Abandoned):
            self.close("the broker is stopping")
        else:
            logger.error("%r: a request failed. The connection is closed", self, exc_info=error)
            self.close("a request failed")

    def close(self, reason: str) -> None:
        """Start no further request, and close when the pending responses were sent."""
        if self.closed or self._hold & _CLOSING:
            return
        logger.warning("closing the connection from %s: %s", self._peer, reason)
        self._hold |= _CLOSING
        self._stopping = True
        self._shared.budget.forget(self)
        self._hold &= ~(_MEMORY | _MUTED)
        self._receive.clear()
        self._shared.ahead.remove(self)
        if not self._hold & _EXECUTING:
            self._uncharge()
        self._pause_for_good()
        self._finish()

    def stop(self) -> None:
        """Stop reading, and close when the responses to the received requests are sent."""
        if self.closed or self._stopping:
            return
        self._stopping = True
        self._pause_for_good()
        self._release(_MUTED)
        self._finish()

    def abort(self, reason: str | None, level: int = logging.WARNING) -> None:
        """Close immediately and drop the bytes that were not sent.

        Args:
            reason: Logged. None logs nothing.
            level: Level of `logging` for the reason.
        """
        if self.closed:
            return
        if reason is not None:
            logger.log(level, "closing the connection from %s immediately: %s", self._peer, reason)
        self._hold |= _CLOSING | _UNSENT  # no later response is sent in place of the dropped bytes
        self._stopping = True
        self._sender.drop()
        # asyncio's transport must not be aborted while it calls `resume_writing`.
        self._shared.loop.call_soon(self._transport.abort)

    def tick(self, now_ms: float, limits: NetLimits) -> None:
        """Close the connection if it was idle or closing for longer than the limits allow."""
        if self._active or self.waits_for_broker:
            self._active = False
            self._idle_since_ms = now_ms
        elif now_ms - self._idle_since_ms >= limits.connections_max_idle_ms:
            # Many clients keep idle connections. A part of a frame is unusual.
            level = logging.WARNING if self._receive.kept else logging.INFO
            self.abort(f"idle for {limits.connections_max_idle_ms} ms", level)
            return
        if not self.closing:
            return
        if self._closing_since_ms is None:
            self._closing_since_ms = now_ms
        elif now_ms - self._closing_since_ms >= limits.closing_ms_max:
            self.abort("its peer does not receive the last responses")

    def serve(self, dispatch: Dispatch, request_bytes_max: int) -> None:
        """Call `dispatch` with each frame from the next one on, even within the same read."""
        self._dispatch = dispatch
        self._request_bytes_max = request_bytes_max

    @property
    def closing(self) -> bool:
        """Whether the connection closes as soon as its peer has received the last responses."""
        return self._stopping

    @property
    def used_ms(self) -> float:
        """The time of the last use, for comparison: the last check for idleness that found any.

        A connection that was used since then counts as in use.
        """
        if self.closing:
            return 0.0
        return math.inf if self._active or self.waits_for_broker else self._idle_since_ms

    @property
    def waits_for_broker(self) -> bool:
        """Whether the broker, and not the peer, has to act next, so the peer is not idle.

        That is the case while the oldest response is not ready, or while requests wait for memory
        or for the end of a mute.
        """
        if not self._queue or self._hold & _UNSENT:
            return bool(self._hold & (_MEMORY | _MUTED))
        head = self._queue[0]
        return not isinstance(head, list) and not head.done

    @property
    def receiving(self) -> tuple[memoryview, int] | None:
        """The buffer of a frame that memory is charged for, and the number of bytes received."""
        if not self._charged or self._hold & _EXECUTING:
            return None
        return self._receive.view, self._receive.kept

    @property
    def _peer(self) -> str:
        return f"{self.peer_address[0]}:{self.peer_address[1]} ({self.listener_name})"

    def _pause_for_good(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _finish(self) -> None:
        """Close if no request or response is pending."""
        if self._queue or self._sender.busy or self._hold & ~_CLOSING or self._resuming:
            return  # each of these calls `_finish` again at its end
        self._hold |= _CLOSING
        self._shared.loop.call_soon(self._transport.close)  # as in `abort`


def _memory_bytes(chunks: Chunks) -> int:
    """Return the bytes of a response that are in memory. The bytes of its regions are in files."""
    return sum([len(chunk) for chunk in chunks if chunk.__class__ in BYTES])


def _discard(reply: Result[Chunks]) -> None:
    """Close the regions of a response that will not be sent."""
    if reply.completed:
        close_regions(reply.value)
