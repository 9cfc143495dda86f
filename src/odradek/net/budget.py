"""Memory over all connections: for requests in `MemoryBudget` and `ReceivedAhead`, for answers in
`QueuedAnswers` and `UnsentAnswers`.

Memory for requests is charged before it is used, a step ahead of the bytes that arrive, and granted
in order: a size that somebody claims and does not send is not memory.

Who finds no room waits; who came first is served first, and nobody overtakes, so a large frame is
not starved by small ones. One frame may always be held, however large: a limit below the largest
frame slows, it does not block. Memory for answers cannot be refused: the request is
executed. When peers let too much of it lie, the one that took nothing for longest loses its
connection.
"""

from __future__ import annotations

from typing import Protocol


class MemoryWaiter(Protocol):
    """Who asked for memory and has to wait for it."""

    def memory_granted(self, size: int) -> None:
        """The `size` bytes asked for are charged now."""


class MemoryBudget:
    """Counts bytes; owned by the loop of the server. `used` and `waiting` are for reading only."""

    __slots__ = ("bytes_max", "used", "waiting")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.waiting: dict[MemoryWaiter, tuple[int, int]] = {}

    def acquire(self, owner: MemoryWaiter, size: int, held: int = 0) -> bool:
        """True: `size` bytes are charged, beside the `held` ones that `owner` has been charged.
        False: `owner.memory_granted(size)` will be called.
        """
        if not self.waiting and self._fits(size, held):
            self.used += size
            return True
        self.waiting[owner] = (size, held)
        return False

    def release(self, size: int) -> None:
        """Gives back `size` bytes and serves those who wait."""
        self.used -= size
        assert self.used >= 0, "more memory given back than taken"
        self._grant()

    def forget(self, owner: MemoryWaiter) -> None:
        """`owner` waits no more."""
        if self.waiting.pop(owner, None) is not None:
            self._grant()

    def _fits(self, size: int, held: int) -> bool:
        return self.used == held or self.used + size <= self.bytes_max

    def _grant(self) -> None:
        while self.waiting:
            owner, (size, held) = next(iter(self.waiting.items()))
            if not self._fits(size, held):
                return
            del self.waiting[owner]
            self.used += size
            owner.memory_granted(size)


class QueueingConnection(Protocol):
    """A connection that has answers behind one that is not ready."""

    def queue_released(self) -> None:
        """Answers of other connections were sent: the limit over all connections is not reached."""


class QueuedAnswers:
    """Bytes of answers that wait for an earlier answer of their connection, and of requests in
    flight.

    An answer that is known cannot be refused. At the limit, connections whose queues are not empty
    start no further request. The limit can be exceeded by the answers to requests that were started
    before.
    """

    __slots__ = ("_held", "bytes_max", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._held: dict[QueueingConnection, None] = {}

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return self.used >= self.bytes_max

    def hold(self, connection: QueueingConnection) -> None:
        """Call `connection.queue_released()` when the limit is no longer reached."""
        self._held[connection] = None

    def add(self, size: int) -> None:
        """Count `size` bytes more."""
        self.used += size

    def remove(self, size: int) -> None:
        """`size` bytes were sent, or dropped."""
        self.used -= size
        if self._held and not self.full:
            held, self._held = self._held, {}
            for connection in held:
                connection.queue_released()

    def forget(self, connection: QueueingConnection) -> None:
        """The connection is closed."""
        self._held.pop(connection, None)


class SlowReader(Protocol):
    """A connection whose peer does not take its answers."""

    def abort(self, reason: str) -> None:
        """Closes at once, and drops what was not sent."""


class UnsentAnswers:
    """Bytes that wait in transports and behind them, by connection, the longest wait first."""

    __slots__ = ("_waiting", "bytes_max", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._waiting: dict[SlowReader, int] = {}

    def add(self, reader: SlowReader, size: int) -> None:
        """`size` bytes for `reader` wait from now on, and none waited before."""
        self._waiting[reader] = size
        self.used += size
        while self.used > self.bytes_max:
            slowest = next(iter(self._waiting))
            self.remove(slowest)
            slowest.abort("it does not take its answers, and the memory for them is used up")

    def remove(self, reader: SlowReader) -> None:
        """All of it was taken, or dropped."""
        self.used -= self._waiting.pop(reader, 0)


SECOND_CHANCES_MAX = 16
"""Connections that `ReceivedAhead` passes over at a time, because the broker holds their requests.
"""


class EarlySender(Protocol):
    """A connection whose peer has sent more than the requests that may start."""

    @property
    def held_by_broker(self) -> bool:
        """Whether its requests wait for the broker and not for the peer."""

    def abort(self, reason: str) -> None:
        """Closes at once, and drops what was not sent."""


class ReceivedAhead:
    """Bytes of torn frames and of requests that may not start, by connection.

    Connections are ordered by age: the time since a request was last taken from the bytes. At the
    limit the oldest connection is closed. A connection that works keeps such bytes for moments. An
    old one has a peer that stopped in the middle of a request, or that takes no responses. A
    connection whose requests the broker holds back goes to the end of the order first, so it is
    closed only when nearly all connections are held back.
    """

    __slots__ = ("_kept", "bytes_max", "scarce_above", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.scarce_above = bytes_max // 2
        self.used = 0
        self._kept: dict[EarlySender, int] = {}

    def keep(self, connection: EarlySender, size: int, *, renewed: bool) -> None:
        """`connection` keeps `size` bytes from now on. `renewed`: it has taken requests before."""
        kept = self._kept
        before = kept.pop(connection, 0) if renewed else kept.get(connection, 0)
        self.used += size - before
        kept[connection] = size
        while self.used > self.bytes_max:
            oldest = self._oldest()
            self.remove(oldest)
            oldest.abort(
                "the memory for requests that are received ahead or in part is used up, "
                "and it has kept some for longest"
            )

    def remove(self, connection: EarlySender) -> None:
        """`connection` keeps none."""
        self.used -= self._kept.pop(connection, 0)

    def _oldest(self) -> EarlySender:
        kept = self._kept
        for _ in range(SECOND_CHANCES_MAX):
            oldest = next(iter(kept))
            if not oldest.held_by_broker:
                return oldest
            kept[oldest] = kept.pop(oldest)
        return next(iter(kept))
