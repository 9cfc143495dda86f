"""The buffers of received bytes, from the socket to the frames. Pure: no socket, no event loop.

All connections of a server read into one shared scratch buffer. This works because no other
connection runs between `get_buffer` and `buffer_updated` of a connection. Bytes that are needed
for longer are kept in memory of their own:

    tail     at most `TAIL_BYTES` of a frame that was received in part (a torn frame). They are
             copied, and put back to the front of the scratch buffer before the next read
    frame    a torn frame of which more has arrived, or that is larger than the scratch buffer: a
             buffer of exactly its size, received into directly
    backlog  bytes that arrive while requests of this connection may not start. Up to
             `KEPT_FREE_BYTES` are kept like a tail

A request that a coroutine executes keeps a view of the scratch buffer after `buffer_updated` has
returned. It then owns the whole buffer, and the other connections get a fresh one. The bytes of
such lent buffers are counted, and the fresh buffer is small while there are many of them. Buffers
are never resized, and bytes are never moved under a view.
"""

from __future__ import annotations

import mmap
import struct

from odradek.net.limits import (
    BACKLOG_BYTES,
    KEPT_FREE_BYTES,
    SCRATCH_BYTES,
    SCRATCH_BYTES_MIN,
    TAIL_BYTES,
)

_MMAP_BYTES = 1_048_576
_SIZE = struct.Struct(">i")


def allocate(size: int) -> memoryview:
    """Return a zeroed, writable buffer. A large one uses memory only as bytes arrive in it."""
    return memoryview(mmap.mmap(-1, size) if size >= _MMAP_BYTES else bytearray(size))


class Scratch:
    """The buffer that the connections of one loop share. `view` is replaced when it is lent.

    Attributes:
        lent: Bytes of buffers that requests in execution use.
        lent_bytes_max: Lent bytes above which the shared buffer is small.
    """

    __slots__ = ("lent", "lent_bytes_max", "view")

    def __init__(self, lent_bytes_max: int) -> None:
        self.lent = 0
        self.lent_bytes_max = lent_bytes_max
        self.view = allocate(SCRATCH_BYTES)

    def lend(self, view: memoryview) -> int:
        """Leave `view` to a request in execution. Return the bytes to `take_back` afterwards."""
        size = len(view)
        self.lent += size
        if view is self.view:
            self._renew()
        return size

    def take_back(self, size: int) -> None:
        """Subtract `size` bytes that are no longer used."""
        self.lent -= size
        if len(self.view) < SCRATCH_BYTES and self.lent <= self.lent_bytes_max:
            self._renew()

    def _renew(self) -> None:
        is_small = self.lent > self.lent_bytes_max
        self.view = allocate(SCRATCH_BYTES_MIN if is_small else SCRATCH_BYTES)


class ReceiveBuffer:
    """One connection's received bytes. `view[start:end]` has not been taken as frames yet.

    `get_buffer` returns the buffer for the next bytes. After `count` bytes have arrived, the
    connection takes the frames from `view[start:end + count]`. It then reports the remaining bytes
    by one of `clear`, `keep_torn` and `keep_waiting`. `own` is False while `view` is the scratch
    buffer.

    Attributes:
        apart: Bytes of memory that only this connection uses. 0 for a tail of at most
            `KEPT_FREE_BYTES`.
        ahead: The part of `apart` that no budget has granted: everything but the buffer of a frame.
    """

    __slots__ = (
        "_limit",
        "_scratch",
        "ahead",
        "apart",
        "end",
        "own",
        "start",
        "tail",
        "view",
    )

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self.own = False
        self.apart = 0
        self.ahead = 0
        self.tail = b""
        self._limit = len(scratch.view)
        self.view = scratch.view
        self.start = 0
        self.end = 0

    def get_buffer(self, _size_hint: int = -1) -> memoryview:
        """Return the buffer for the next bytes. It is never empty unless `full`."""
        if self.own:
            return self.view[self.end : self._limit]
        view = self.view = self._scratch.view
        tail = self.tail
        if not tail:
            return view
        size = self.end = len(tail)
        view[:size] = tail
        return view[size:]

    @property
    def full(self) -> bool:
        """Whether the buffer has no room, so reading has to stop until frames were taken."""
        return self.own and self.end == self._limit

    @property
    def kept(self) -> int:
        """Bytes kept for a later frame or request."""
        return self.end - self.start if self.own else len(self.tail)

    def clear(self) -> None:
        """Drop all bytes, because they were taken or are not needed."""
        self.own = False
        self.apart = 0
        self.ahead = 0
        self.tail = b""
        self.view = self._scratch.view
        self.start = self.end = 0

    def lend(self) -> int:
        """Keep a view of the present buffer in use: nothing else may be written to it.

        Returns:
            The number of bytes to pass to `Scratch.take_back` after the use. The buffer of a frame
            does not count, because memory was charged for it.
        """
        if self.own and not self.ahead:
            return 0
        return self._scratch.lend(self.view)

    def needed(self, start: int, end: int) -> int:
        """Return the size of the buffer that a torn frame at `start` needs, or 0 for a tail."""
        if end - start <= TAIL_BYTES:
            if end - start < 4:
                return 0
            size = 4 + int(_SIZE.unpack_from(self.view, start)[0])
            return size if size > len(self._scratch.view) else 0
        return 4 + int(_SIZE.unpack_from(self.view, start)[0])

    def keep_torn(self, start: int, end: int, needed: int, limit: int = 0) -> None:
        """Keep the first bytes of a frame.

        Args:
            start: Where the frame begins in `view`.
            end: Where the received bytes end in `view`.
            needed: Size of the buffer for the frame. 0 keeps the bytes as a tail.
            limit: Bytes at which the buffer is `full`.
        """
        view = self.view
        if needed:
            if self.own and start == 0 and len(view) == needed:
                self.end = end
            else:
                own = allocate(needed)
                own[: end - start] = view[start:end]
                self._hold(own, end - start)
            self.ahead = 0
            self._limit = min(limit, needed)
        else:
            self._keep_tail(start, end)

    def keep_waiting(self, start: int, end: int, exact: bool = False) -> None:
        """Keep bytes that may not be taken as frames yet.

        There is room for some more, unless `exact` asks for the least memory. Then the buffer may
        be `full` immediately.
        """
        size = end - start
        if size <= KEPT_FREE_BYTES and (self.ahead or not self.own):
            self._keep_tail(start, end)
            return
        stays = start == 0 or end < len(self.view) or (exact and start < size)
        if self.own and stays:
            self.start, self.end = start, end
            return
        own = allocate(size if exact else max(BACKLOG_BYTES, size))
        own[:size] = self.view[start:end]
        self._hold(own, size)

    def _keep_tail(self, start: int, end: int) -> None:
        tail = bytes(self.view[start:end])
        self.clear()
        self.tail = tail
        if len(tail) > KEPT_FREE_BYTES:
            self.apart = self.ahead = len(tail)

    def _hold(self, own: memoryview, size: int) -> None:
        self.own = True
        self.apart = self.ahead = len(own)
        self.tail = b""
        self.view, self.start, self.end, self._limit = own, 0, size, len(own)
