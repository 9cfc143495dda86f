"""A transport without a socket, and a connection on it, to test received and sent bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.environment.clock import Clock, ManualClock
from odradek.environment.timers import LoopTimers
from odradek.net.budget import MemoryBudget, QueuedResponses, ReceivedAhead, UnsentResponses
from odradek.net.connection import Connection, Shared
from odradek.net.limits import NetLimits
from odradek.net.receive import Scratch
from odradek.net.session import PLAIN_SOCKET, TransportKind


class MockTransport(asyncio.Transport):
    """A transport that accepts `room` bytes into `written`.

    Further bytes wait in its buffer and pause the protocol.
    """

    def __init__(self, room: float = float("inf")) -> None:
        super().__init__()
        self.room = room
        self.written = bytearray()
        self.waiting = bytearray()
        self.writes = 0
        self.write_buffer_high: int | None = None
        self.reading = True
        self.closing = False
        self.aborted = False
        self.protocol: Connection | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": ("127.0.0.1", 9092), "peername": ("127.0.0.1", 50000)}.get(
            name, default
        )

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.write_buffer_high = high

    def write(self, data: Any) -> None:
        assert not self.closing, "written after the end"
        self.writes += 1
        self.waiting += data
        self._move()
        if self.waiting and self.protocol is not None:
            self.protocol.pause_writing()

    def take(self, room: float) -> None:
        """Simulate that the peer reads `room` more bytes."""
        self.room += room
        had = bool(self.waiting)
        self._move()
        if had and not self.waiting and self.protocol is not None:
            if self.closing:
                self.lose()
            else:
                self.protocol.resume_writing()

    def _move(self) -> None:
        count = int(min(self.room, len(self.waiting)))
        self.room -= count
        self.written += self.waiting[:count]
        del self.waiting[:count]

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def is_reading(self) -> bool:
        return self.reading

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self.reading = False
            if not self.waiting:
                asyncio.get_running_loop().call_soon(self.lose)

    def abort(self) -> None:
        self.aborted = True
        self.waiting.clear()
        if not self.closing:
            self.close()
        else:
            self.lose()

    def lose(self) -> None:
        """Simulate that the connection is lost."""
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            protocol.connection_lost(None)


def open_connection(
    dispatch: Callable[..., Any],
    *,
    clock: Clock | None = None,
    limits: NetLimits | None = None,
    budget: MemoryBudget | None = None,
    queued: QueuedResponses | None = None,
    unsent: UnsentResponses | None = None,
    ahead: ReceivedAhead | None = None,
    scratch: Scratch | None = None,
    room: float = float("inf"),
    transport_kind: TransportKind = PLAIN_SOCKET,
) -> tuple[Connection, MockTransport]:
    """Return a connection served by `dispatch`. This needs a running event loop."""
    limits = limits or NetLimits()
    shared = Shared(
        loop=asyncio.get_running_loop(),
        monotonic_ms=(clock or ManualClock()).monotonic_ms,
        timers=LoopTimers(),
        dispatch=dispatch,
        limits=limits,
        budget=budget or MemoryBudget(limits.request_bytes_queued_max),
        queued=queued or QueuedResponses(limits.response_bytes_queued_total_max),
        unsent=unsent or UnsentResponses(limits.response_bytes_unsent_max),
        ahead=ahead or ReceivedAhead(limits.received_ahead_bytes_max),
        scratch=scratch or Scratch(limits.lent_bytes_max),
    )
    connection = Connection(shared, "PLAINTEXT", None, transport_kind=transport_kind)
    transport = MockTransport(room)
    transport.protocol = connection
    connection.connection_made(transport)
    assert transport.write_buffer_high == transport_kind.write_buffer_high
    return connection, transport


def feed(connection: Connection, data: bytes | memoryview) -> int:
    """Pass bytes of the peer to the connection until it stops reading. Return how many it took.

    Like an event loop, call `get_buffer`, copy, and call `buffer_updated`.
    """
    view = memoryview(data)
    taken = 0
    transport = connection._transport
    while taken < len(view) and transport.is_reading():
        room = connection.get_buffer(-1)
        assert len(room), "reading without room"
        count = min(len(room), len(view) - taken)
        room[:count] = view[taken : taken + count]
        taken += count
        connection.buffer_updated(count)
    return taken
