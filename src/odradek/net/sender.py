"""Sending of responses that hold file regions, in order: by sendfile, or by reads without it.

A connection writes up to `WRITE_PIECE_BYTES` to its transport itself as long as no chunk is queued.
All other chunks are passed to a `Sender`: a queue that is sent from the front. While the transport
holds bytes (`paused`, because its limits are zero), nothing is sent past it. While it holds none,
the header of a region is sent by `send(MSG_MORE)` on the same socket and the region by `sendfile`.
A fetch response ends with a few bytes after its region. They are sent in the region's last packet:
the socket is corked while the response is sent (TCP_CORK). A packet of their own would cost both
sides a further pass through the network stack, and the client a wake-up.

When the socket is full, the sender hands the next few bytes of the region to the transport. The
transport waits for the socket and reports when it has sent them. So the socket has one writer and
is polled once, and there is no duplicate descriptor that could spin, or leak when the peer
disconnects.

A thread of the executor reads the pieces that are not in the page cache, before the loop sends
them. A region that ends early closes the connection: no other bytes are ever sent in its place.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol

from odradek.environment.network import StreamSocket
from odradek.net.limits import (
    COLD_PIECE_BYTES,
    FLUSH_BYTES,
    PLUG_BYTES,
    PUMP_BYTES_MAX,
    READ_PIECE_BYTES,
    SMALL_REGION_BYTES,
    SMALL_REGION_COST_BYTES,
    WRITE_PIECE_BYTES,
)

logger = logging.getLogger(__name__)

_NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_TCP_CORK: int | None = getattr(socket, "TCP_CORK", None)  # Linux
_INTERNET = (socket.AF_INET, socket.AF_INET6)
BYTES = (bytes, bytearray, memoryview)
"""Types of the chunks that are not regions."""


class Region(Protocol):
    """The part of `odradek.records.region.FileRegion` that sending uses."""

    position: int
    length: int

    def __len__(self) -> int: ...
    def resident(self) -> int: ...
    def touch(self, offset: int, count: int) -> None: ...
    def read_piece(self, offset: int, count: int) -> bytes: ...
    def sendfile(self, socket_fd: int, offset: int, count: int) -> int: ...
    def close(self) -> None: ...


Chunk = bytes | bytearray | memoryview | Region


class PeerGone(Exception):
    """The peer has closed the connection, so the socket accepts no further bytes."""


class ShortRegion(Exception):
    """The file ends before the region does, so the announced size cannot be sent."""


def close_regions(chunks: Any) -> None:
    """Close the regions among `chunks`. Each region is closed once, whether sent or dropped."""
    for chunk in chunks:
        if hasattr(chunk, "close"):
            chunk.close()


def _ended(*_: object) -> None:
    """Callback of a sender whose connection is closed."""


class Sender:
    """The queue of one connection, which owns it and reports pauses and the end.

    Attributes:
        busy: Chunks wait in the queue, so later chunks have to be queued as well.
        paused: The transport holds bytes, or the time slice has ended.
        unsent_bytes: Memory of the chunks that wait, without their regions.

    Args:
        on_idle: Called when all chunks were sent, but not from within `send`.
        on_failure: Called with a reason and a level of `logging` when they cannot be sent.
    """

    __slots__ = (
        "_can_cork",
        "_closed",
        "_executor",
        "_loop",
        "_offset",
        "_on_failure",
        "_on_idle",
        "_queue",
        "_reading_ahead",
        "_slice_bytes",
        "_socket",
        "_transport",
        "_use_sendfile",
        "_warm",
        "busy",
        "paused",
        "unsent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        sock: StreamSocket | None,
        *,
        executor: Executor | None,
        on_idle: Callable[[], None],
        on_failure: Callable[[str, int], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._socket = sock
        self._use_sendfile = sock is not None
        # Only tests and the simulator use another kind of socket than TCP.
        self._can_cork = _TCP_CORK is not None and sock is not None and sock.family in _INTERNET
        self._executor = executor
        self._on_idle = on_idle
        self._on_failure = on_failure
        self._queue: deque[Chunk] = deque()
        self._offset = 0  # bytes of the region at the front that were sent
        self._warm = -1  # bytes of it that may be sent from the loop, -1: not probed
        self._slice_bytes = 0  # bytes sent in this time slice, and the cost of small regions
        self._reading_ahead = False
        self._closed = False
        self.busy = False
        self.paused = False
        self.unsent_bytes = 0

    def send(self, chunks: list[Chunk], size: int) -> None:
        """Send `chunks` after everything sent before. Take over the regions among them.

        Args:
            chunks: Bytes and regions.
            size: Bytes of all of them, with or without the sizes of the responses.
        """
        if self._closed:
            close_regions(chunks)
            return
        direct = self._use_sendfile and not self.busy and not self.paused
        if direct and self._send_usual(chunks, size):
            return
        queue = self._queue
        start = 0
        for at, chunk in enumerate(chunks):  # the bytes between regions as one: fewer steps later
            if chunk.__class__ not in BYTES:
                if start < at:
                    self._queue_plain(chunks[start:at])
                queue.append(chunk)
                start = at + 1
        if start < len(chunks):
            self._queue_plain(chunks[start:])
        if not self.busy:
            self.busy = True
            self._pump()

    def _send_usual(  # noqa: C901 - calls are what this path costs
        self, chunks: list[Chunk], total: int
    ) -> bool:
        """Send a response with one large region directly, while nothing waits.

        Everything that is not sent immediately, for any reason, is queued. The sending of
        the queue then meets the same condition and handles it.

        Returns:
            False, without having done anything, if the chunks do not have that shape.
        """
        at = len(chunks)
        region: Any = None
        for region in reversed(chunks):
            at -= 1
            if region.__class__ not in BYTES:
                break
        if at <= 0 or not SMALL_REGION_BYTES < region.length <= PUMP_BYTES_MAX:
            return False
        if total - region.length > WRITE_PIECE_BYTES:
            return False
        try:
            head = b"".join(chunks[:at])  # type: ignore[arg-type]
        except TypeError:  # there is another region
            return False
        tail = b"".join(chunks[at + 1 :])  # type: ignore[arg-type]
        if self._transport.is_closing():
            return False
        size, sent, offset, warm = region.length, 0, 0, -1
        sock: Any = self._socket
        corks = self._can_cork and tail
        try:
            if corks:  # so that the last packet of the region contains the tail
                sock.setsockopt(socket.IPPROTO_TCP, _TCP_CORK, 1)
            sent = sock.send(head, _MSG_MORE)
            if sent == len(head):
                warm = region.resident()
                if warm == size:
                    offset = region.sendfile(sock.fileno(), 0, size)
                    if corks and offset == size:
                        tail = tail[sock.send(tail) :]
        except (OSError, ValueError):  # a full socket, too
            pass
        finally:
            if corks:
                self._uncork()
        if offset == size:
            region.close()
            if tail:
                self._transport.write(tail)
        else:
            self._offset, self._warm = offset, warm
            self._send_rest(head[sent:], region, tail)
        return True

    def _uncork(self) -> None:
        """Make the system send the packet that it holds back."""
        assert self._socket is not None
        assert _TCP_CORK is not None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, _TCP_CORK, 0)
        except OSError as error:  # the transport reports the end of the connection
            logger.debug("a socket cannot be uncorked: %s", error)

    def _send_rest(self, head: bytes, region: Region, tail: bytes) -> None:
        """Queue the rest of a response that was sent directly in part, and continue with it."""
        self._queue.extend(chunk for chunk in (head, region, tail) if len(chunk))
        self.unsent_bytes += len(head) + len(tail)
        self.busy = True
        self._pump(full=self._offset > 0)

    def _queue_plain(self, chunks: list[Chunk]) -> None:
        size = sum(map(len, chunks))
        if size <= WRITE_PIECE_BYTES:
            self._queue.append(b"".join(chunks))  # type: ignore[arg-type]
        else:  # `_take_plain` joins each piece
            self._queue.extend(chunks)
        self.unsent_bytes += size

    def resume(self) -> None:
        """Continue sending, because the transport has sent all its bytes."""
        self.paused = False
        if self.busy and not self._reading_ahead:
            self._continue()

    def drop(self) -> None:
        """Close the regions that were not sent, because the connection is closed.

        The sender calls the connection no longer. A reference to it would be a reference cycle.
        """
        self._closed = True
        self._on_idle = self._on_failure = _ended
        self.busy = False
        self.unsent_bytes = 0
        if self._reading_ahead:
            return  # the thread still reads the region at the front, closed when it returns
        close_regions(self._queue)
        self._queue.clear()

    def _continue(self) -> None:
        if self._closed:
            return
        self._pump()
        if not self.busy and not self._closed:
            self._on_idle()

    def _pump(self, full: bool = False) -> None:
        """Send until the queue is empty, or has to wait for the socket, a thread or the next slice.

        Args:
            full: The socket has just become full during the region at the front.
        """
        self._slice_bytes = self._offset if full else 0
        try:
            if full:
                self._plug(self._queue[0])  # type: ignore[arg-type]
            while self._queue and not (self.paused or self._closed or self._transport.is_closing()):
                if self._slice_bytes >= PUMP_BYTES_MAX:
                    self.paused = True  # as if the transport were full: others continue first
                    self._loop.call_soon(self.resume)
                    return
                plain = self._take_plain()
                if plain:
                    self._send_plain(plain)
                elif not self._send_region(self._queue[0]):  # type: ignore[arg-type]
                    return
        except ShortRegion as error:
            reason = f"a log file was truncated while it was sent: {error}"
            self._on_failure(reason, logging.WARNING)
        except PeerGone as error:
            self._on_failure(str(error), logging.INFO)
        except Exception as error:
            logger.exception("a response cannot be sent. The connection is closed")
            self._on_failure(f"a response cannot be sent: {error}", logging.WARNING)
        else:
            self.busy = bool(self._queue)

    def _take_plain(self) -> list[bytes | bytearray | memoryview]:
        """Take the bytes at the front of the queue, with the small regions in the page cache.

        Of a chunk that exceeds `WRITE_PIECE_BYTES`, its first bytes are taken.
        """
        queue = self._queue
        plain: list[bytes | bytearray | memoryview] = []
        size = 0
        while queue and size < FLUSH_BYTES and self._slice_bytes < PUMP_BYTES_MAX:
            head = queue[0]
            if head.__class__ in BYTES:
                data: Any = head
                if len(data) > WRITE_PIECE_BYTES - size:
                    data = memoryview(data)[: WRITE_PIECE_BYTES - size]
                    rest = memoryview(head)[len(data) :]
                    queue.insert(1, rest)
                self.unsent_bytes -= len(data)
            elif head.length > SMALL_REGION_BYTES or self._offset:  # type: ignore[union-attr]
                break
            else:
                data = self._read_small(head)  # type: ignore[arg-type]
                if data is None:
                    break
            queue.popleft()
            plain.append(data)
            size += len(data)
        return plain

    def _read_small(self, region: Region) -> bytes | None:
        """Read a small region if that does not wait for the disk, and close it. Otherwise None."""
        size = region.length
        if self._warm < size:
            self._warm = region.resident()
            if self._warm < size:
                return None
        data = region.read_piece(0, size)
        if len(data) < size:
            raise ShortRegion(f"{len(data)} of {size} bytes at {region.position}")
        region.close()
        self._warm = -1
        self._slice_bytes += SMALL_REGION_COST_BYTES
        return data

    def _send_plain(self, plain: list[bytes | bytearray | memoryview]) -> None:
        data = plain[0] if len(plain) == 1 else b"".join(plain)
        self._slice_bytes += len(data)
        if self._queue and self._use_sendfile and self._queue[0].__class__ not in BYTES:
            data = memoryview(data)[self._send_more(data) :]
        # asyncio's transport would copy the bytes of a bytes object that the socket does not take.
        self._transport.write(memoryview(data))

    def _send_more(self, data: bytes | bytearray | memoryview) -> int:
        """Send the start of a region's header. The system appends the region to the packet.

        Returns:
            The number of bytes that the socket accepted.
        """
        assert self._socket is not None
        try:
            return self._socket.send(data, _MSG_MORE)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerGone(f"send failed: {error}") from error

    def _send_region(self, region: Region) -> bool:
        """Send a piece of the region at the front. Return False if a thread reads it first."""
        size = region.length
        if self._warm < 0:
            self._warm = region.resident()
        if self._offset < size:
            if self._offset >= self._warm:
                self._read_ahead(region)
                return False
            count = self._warm - self._offset
            if self._use_sendfile:
                self._sendfile(region, min(count, PUMP_BYTES_MAX))
            else:
                self._write_piece(region, min(count, READ_PIECE_BYTES))
        if self._offset == size:
            self._queue.popleft()
            region.close()
            self._offset, self._warm = 0, -1
        return True

    def _sendfile(self, region: Region, count: int) -> None:
        assert self._socket is not None
        try:
            sent = region.sendfile(self._socket.fileno(), self._offset, count)
        except BlockingIOError:
            sent = -1
        except OSError as error:
            if error.errno not in _NO_SENDFILE:
                raise PeerGone(f"sendfile failed: {error}") from error
            self._use_sendfile = False
            return
        if sent == 0:
            position = region.position + self._offset
            raise ShortRegion(f"no byte at position {position}, {count} bytes are missing")
        if sent < 0:
            sent = 0
        self._offset += sent
        self._slice_bytes += sent
        if sent < count:
            self._plug(region)

    def _plug(self, region: Region) -> None:
        """Make the transport wait for the full socket."""
        count = min(self._warm - self._offset, PLUG_BYTES)
        self._write_piece(region, count)

    def _write_piece(self, region: Region, count: int) -> None:
        """Hand the next `count` bytes of the file to the transport."""
        data = region.read_piece(self._offset, count)
        if len(data) < count:
            position = region.position + self._offset
            raise ShortRegion(f"{len(data)} of {count} bytes at {position}")
        self._offset += count
        self._slice_bytes += count
        self._transport.write(data)

    def _read_ahead(self, region: Region) -> None:
        """Make a thread bring the next piece of `region` into the page cache."""
        count = min(region.length - self._offset, COLD_PIECE_BYTES)
        self._reading_ahead = True
        future = self._loop.run_in_executor(self._executor, region.touch, self._offset, count)
        self._warm = self._offset + count
        future.add_done_callback(self._read_ahead_done)

    def _read_ahead_done(self, future: asyncio.Future[None]) -> None:
        self._reading_ahead = False
        if self._closed:
            self.drop()
            _ = future.cancelled() or future.exception()
            return
        if future.cancelled() or future.exception() is not None:
            self._on_failure(f"a log file cannot be read: {future}", logging.WARNING)
            return
        if not self.paused:
            self._continue()
