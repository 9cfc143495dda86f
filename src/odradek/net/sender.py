"""Answers that hold file regions, to the socket, in order: sendfile, or reads where there is none.

A connection writes plain bytes to its transport itself as long as nothing waits. Everything else
comes here: a queue of chunks, sent from the front. While the transport holds bytes of ours
(`paused`: its limits are zero) nothing is sent past it. With nothing held, a region's header leaves
by `send(MSG_MORE)` on the same socket and the region by `sendfile`. When the socket takes no more,
the next few bytes of the region are handed to the transport, which waits for the socket and says
when they are gone: so there is one writer, one poll of the socket, and no descriptor of our own to
spin on or to leak when the peer goes away.

What is not in the page cache is read by a thread of the executor, piece by piece, before it is sent
from the loop. A region that ends early closes the connection: no other byte is ever sent.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol

from odradek.net.limits import (
    COLD_PIECE_BYTES,
    FLUSH_BYTES,
    PLUG_BYTES,
    PUMP_BYTES_MAX,
    READ_PIECE_BYTES,
    SMALL_REGION_BYTES,
)

logger = logging.getLogger(__name__)

_NO_SENDFILE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
BYTES = (bytes, bytearray, memoryview)
"""What a chunk is that is not a region."""


class Region(Protocol):
    """`odradek.records.region.FileRegion`, as far as sending needs it."""

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
    """The socket takes nothing any more."""


class ShortRegion(Exception):
    """The file ends before the region does: what was promised cannot be sent."""


def close_regions(chunks: Any) -> None:
    """Closes the regions among `chunks` (sent or dropped, each is closed once)."""
    for chunk in chunks:
        if hasattr(chunk, "close"):
            chunk.close()


class Sender:
    """The queue of one connection. Owned by its connection, which tells it of pauses and the end.

    `busy`: chunks wait here, so whatever comes next has to queue up as well. `unsent_bytes` is the
    memory of these chunks, without the regions. `on_idle` is called
    when they are gone (not from within `send`), `on_failure(reason, level)`
    when they never will be: the reason is to be logged at that level of `logging`.
    """

    __slots__ = (
        "_closed",
        "_executor",
        "_loop",
        "_offset",
        "_on_failure",
        "_on_idle",
        "_queue",
        "_reading_ahead",
        "_socket",
        "_transport",
        "_turn",
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
        sock: socket.socket | None,
        *,
        executor: Executor | None,
        on_idle: Callable[[], None],
        on_failure: Callable[[str, int], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._socket = sock
        self._use_sendfile = sock is not None and hasattr(os, "sendfile")
        self._executor = executor
        self._on_idle = on_idle
        self._on_failure = on_failure
        self._queue: deque[Chunk] = deque()
        self._offset = 0  # bytes of the region at the front that were sent
        self._warm = -1  # bytes of it that may be sent from the loop; -1: not probed
        self._turn = 0  # bytes sent in this turn of the loop
        self._reading_ahead = False
        self._closed = False
        self.busy = False
        self.paused = False
        self.unsent_bytes = 0

    def send(self, chunks: list[Chunk]) -> None:
        """Sends `chunks` after everything sent before; takes over the regions among them."""
        if self._closed:
            close_regions(chunks)
            return
        if self._use_sendfile and not self.busy and not self.paused and self._send_usual(chunks):
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
        self, chunks: list[Chunk]
    ) -> bool:
        """Sends an answer with one large region by the straight way, when nothing waits.

        False, and nothing is done, when the chunks are not of that shape. What does not leave at
        once, for whatever reason, is queued: the queue meets the same reason and deals with it.
        """
        at = len(chunks)
        region: Any = None
        for region in reversed(chunks):
            at -= 1
            if region.__class__ not in BYTES:
                break
        if at <= 0 or not SMALL_REGION_BYTES < region.length <= PUMP_BYTES_MAX:
            return False
        try:
            head = b"".join(chunks[:at])  # type: ignore[arg-type]
        except TypeError:  # there is a region more
            return False
        tail = b"".join(chunks[at + 1 :])  # type: ignore[arg-type]
        if self._transport.is_closing():
            return False
        size, sent, offset, warm = region.length, 0, 0, -1
        sock: Any = self._socket
        try:
            sent = sock.send(head, _MSG_MORE)
            if sent == len(head):
                warm = region.resident()
                if warm == size:
                    offset = region.sendfile(sock.fileno(), 0, size)
        except (OSError, ValueError):  # of a socket that is full, too
            pass
        if offset == size:
            region.close()
            if tail:
                self._transport.write(tail)
        else:
            self._offset, self._warm = offset, warm
            self._send_rest(head[sent:], region, tail)
        return True

    def _send_rest(self, head: bytes, region: Region, tail: bytes) -> None:
        """Queues what did not leave by the straight way, and goes on with it."""
        self._queue.extend(chunk for chunk in (head, region, tail) if len(chunk))
        self.unsent_bytes += len(head) + len(tail)
        self.busy = True
        self._pump(full=self._offset > 0)

    def _queue_plain(self, chunks: list[Chunk]) -> None:
        data = b"".join(chunks)  # type: ignore[arg-type]
        self._queue.append(data)
        self.unsent_bytes += len(data)

    def resume(self) -> None:
        """The transport has nothing left: sending goes on."""
        self.paused = False
        if self.busy and not self._reading_ahead:
            self._continue()

    def drop(self) -> None:
        """The connection is gone: closes what was not sent."""
        self._closed = True
        self.busy = False
        self.unsent_bytes = 0
        if self._reading_ahead:
            return  # the thread still reads from the region at the front: closed when it returns
        close_regions(self._queue)
        self._queue.clear()

    def _continue(self) -> None:
        if self._closed:
            return
        self._pump()
        if not self.busy and not self._closed:
            self._on_idle()

    def _pump(self, full: bool = False) -> None:
        """Sends until the queue is empty or something has to be waited for.

        `full`: the socket has just taken no more of the region at the front.
        """
        self._turn = self._offset if full else 0
        try:
            if full:
                self._plug(self._queue[0])  # type: ignore[arg-type]
            while self._queue and not (self.paused or self._closed or self._transport.is_closing()):
                if self._turn >= PUMP_BYTES_MAX:
                    self.paused = True  # as if the transport were full: the others have a turn
                    self._loop.call_soon(self.resume)
                    return
                plain = self._take_plain()
                if plain:
                    self._send_plain(plain)
                elif not self._send_region(self._queue[0]):  # type: ignore[arg-type]
                    return
        except ShortRegion as error:
            reason = f"a log file was cut short under a response: {error}"
            self._on_failure(reason, logging.WARNING)
        except PeerGone as error:
            self._on_failure(str(error), logging.INFO)
        except Exception as error:
            logger.exception("a response cannot be sent")
            self._on_failure(f"a response cannot be sent: {error}", logging.WARNING)
        else:
            self.busy = bool(self._queue)

    def _take_plain(self) -> list[bytes | bytearray | memoryview]:
        """Takes the bytes at the front of the queue, small regions in memory among them."""
        queue = self._queue
        plain: list[bytes | bytearray | memoryview] = []
        size = 0
        while queue and size < FLUSH_BYTES:
            head = queue[0]
            if head.__class__ in BYTES:
                data: Any = head
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
        """The bytes of a small region that can be read without waiting, which is then closed."""
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
        return data

    def _send_plain(self, plain: list[bytes | bytearray | memoryview]) -> None:
        data = plain[0] if len(plain) == 1 else b"".join(plain)
        self._turn += len(data)
        if self._queue and self._use_sendfile and self._queue[0].__class__ not in BYTES:
            data = memoryview(data)[self._send_more(data) :]
        self._transport.write(data)

    def _send_more(self, data: bytes | bytearray | memoryview) -> int:
        """Sends what the socket takes of a region's header; the system adds the region to it."""
        assert self._socket is not None
        try:
            return self._socket.send(data, _MSG_MORE)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerGone(f"send failed: {error}") from error

    def _send_region(self, region: Region) -> bool:
        """Sends a piece of the region at the front; False when a thread reads it first."""
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
            raise ShortRegion(f"nothing at {position} of a region to {count} bytes further")
        if sent < 0:
            sent = 0
        self._offset += sent
        self._turn += sent
        if sent < count:
            self._plug(region)

    def _plug(self, region: Region) -> None:
        """Has the transport wait for the full socket."""
        count = min(self._warm - self._offset, PLUG_BYTES)
        self._write_piece(region, count)

    def _write_piece(self, region: Region, count: int) -> None:
        """Hands the next `count` bytes of the file to the transport."""
        data = region.read_piece(self._offset, count)
        if len(data) < count:
            position = region.position + self._offset
            raise ShortRegion(f"{len(data)} of {count} bytes at {position}")
        self._offset += count
        self._turn += count
        self._transport.write(data)

    def _read_ahead(self, region: Region) -> None:
        """Has a thread bring the next piece of `region` into the page cache."""
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
