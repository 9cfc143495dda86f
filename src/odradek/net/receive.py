"""Where received bytes lie, from the socket to the frames. Pure: no socket, no loop.

All connections of a server read into one shared scratch buffer: between `get_buffer` and
`buffer_updated` of a connection no other one runs. What a frame needs beyond that moment gets a
place of its own:

    tail     the first bytes of a torn frame (at most `TAIL_BYTES`): copied aside, and to the
             front of the scratch buffer before the next read
    frame    a torn frame that is larger: a buffer of exactly its size, received into directly
    backlog  bytes that arrive while requests of this connection may not start

A view of the scratch buffer that outlives its moment (a request executed by a coroutine) takes the
whole buffer with it: the others get a fresh one. Buffers are never resized, and bytes are never
moved under a view.
"""

from __future__ import annotations

import mmap
import struct

from odradek.net.limits import BACKLOG_BYTES, SCRATCH_BYTES, TAIL_BYTES

_MMAP_BYTES = 1_048_576
_SIZE = struct.Struct(">i")


def allocate(size: int) -> memoryview:
    """A zeroed, writable buffer; large ones take memory only as bytes arrive in them."""
    return memoryview(mmap.mmap(-1, size) if size >= _MMAP_BYTES else bytearray(size))


class Scratch:
    """The buffer that the connections of one loop share; `view` is replaced when lent out."""

    __slots__ = ("view",)

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        self.view = allocate(size)

    def replace(self) -> None:
        """Leaves the present buffer to whoever holds a view of it."""
        self.view = allocate(len(self.view))


class ReceiveBuffer:
    """One connection's received bytes: `view[start:end]` was not taken as frames yet.

    `get_buffer` says where the next bytes go. When `count` of them are there,
    `view[start:end + count]` is what is to be taken as frames, and one of `clear`, `keep_torn` and
    `keep_waiting` is told what is left. `own` is False while `view` is the scratch buffer.
    """

    __slots__ = ("_limit", "_scratch", "end", "own", "start", "tail", "view")

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self.own = False
        self.tail = b""
        self._limit = len(scratch.view)
        self.view = scratch.view
        self.start = 0
        self.end = 0

    def get_buffer(self, _size_hint: int = -1) -> memoryview:
        """Room for the next bytes, never empty unless `full`."""
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
        """No room: reading has to stop until frames were taken."""
        return self.own and self.end == self._limit

    @property
    def kept(self) -> int:
        """Bytes kept for a later frame or request."""
        return self.end - self.start if self.own else len(self.tail)

    def clear(self) -> None:
        """Everything was taken (or is not wanted any more)."""
        self.own = False
        self.tail = b""
        self.view = self._scratch.view
        self.start = self.end = 0

    def lend(self) -> None:
        """A view of the present buffer stays in use: nothing else may be written there."""
        if self.view is self._scratch.view:
            self._scratch.replace()

    def needed(self, start: int, end: int) -> int:
        """Bytes for which a torn frame at `start` needs a buffer of its own; 0: none."""
        if end - start <= TAIL_BYTES:
            if end - start < 4:
                return 0
            size = 4 + int(_SIZE.unpack_from(self.view, start)[0])
            return size if size > len(self._scratch.view) else 0
        return 4 + int(_SIZE.unpack_from(self.view, start)[0])

    def keep_torn(self, start: int, end: int, needed: int, limit: int = 0) -> None:
        """Keeps the first bytes of a frame, in a buffer of `needed` bytes unless that is 0; it is
        `full` at `limit`.
        """
        view = self.view
        if needed:
            if self.own and start == 0 and len(view) == needed:
                self.end = end
            else:
                own = allocate(needed)
                own[: end - start] = view[start:end]
                self._hold(own, 0, end - start)
            self._limit = min(limit, needed)
        else:
            tail = bytes(view[start:end])
            self.clear()
            self.tail = tail

    def keep_waiting(self, start: int, end: int) -> None:
        """Keeps bytes that may not be taken as frames yet, with room for some more."""
        if self.own and (start == 0 or end < len(self.view)):
            self.start, self.end = start, end
            return
        size = end - start
        own = allocate(max(BACKLOG_BYTES, size))
        own[:size] = self.view[start:end]
        self._hold(own, 0, size)

    def _hold(self, own: memoryview, start: int, end: int) -> None:
        self.own = True
        self.tail = b""
        self.view, self.start, self.end, self._limit = own, start, end, len(own)
