"""Memory limits over all connections of a server.

`MemoryBudget` and `ReceivedAhead` count the memory of requests, `QueuedResponses` and
`UnsentResponses` the memory of responses.

The budget charges the memory of a large frame before the connection allocates it, in steps ahead of
the bytes that arrive. A frame size that a peer announces without sending the bytes is not charged.

Memory is granted in FIFO order, so small frames cannot starve a large one. One frame may always be
held, however large: a limit below the largest frame slows requests down and never blocks them.
Memory for responses cannot be refused, because their requests are executed already. When the
unsent responses exceed their limit, the server closes the connection whose transport has been full
for the longest time.
"""

from __future__ import annotations

from typing import Protocol


class MemoryOwner(Protocol):
    """A connection that has requested memory and waits for it."""

    def memory_granted(self, size: int) -> None:
        """Report that the budget has charged the `size` bytes that this owner requested."""


class MemoryBudget:
    """The bytes of large frames. Owned by the server's loop; others only read the attributes."""

    __slots__ = ("bytes_max", "used", "waiting")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.waiting: dict[MemoryOwner, tuple[int, int]] = {}

    def acquire(self, owner: MemoryOwner, size: int, held: int = 0) -> bool:
        """Charge `size` bytes to `owner`, in addition to `held` bytes that it is charged already.

        Returns:
            True if the bytes are charged. Otherwise the budget calls `owner.memory_granted(size)`
            when it has charged them.
        """
        if not self.waiting and self._fits(size, held):
            self.used += size
            return True
        self.waiting[owner] = (size, held)
        return False

    def release(self, size: int) -> None:
        """Return `size` bytes to the budget, and grant memory to the owners that wait."""
        self.used -= size
        assert self.used >= 0, "more memory released than acquired"
        self._grant()

    def forget(self, owner: MemoryOwner) -> None:
        """Remove `owner` from the queue of waiting owners."""
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
    """A connection that has responses behind an earlier response that is not ready."""

    def queue_released(self) -> None:
        """Continue: responses of other connections were sent, so the total is below its limit."""


class QueuedResponses:
    """Bytes of requests in flight, and of responses that wait for an earlier one.

    A response that is ready cannot be refused. At the limit, connections that have a request in
    flight start no further request. The responses to requests that were started before may exceed
    the limit.
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
        """Subtract `size` bytes that were sent or dropped."""
        self.used -= size
        if self._held and not self.full:
            held, self._held = self._held, {}
            for connection in held:
                connection.queue_released()

    def forget(self, connection: QueueingConnection) -> None:
        """Remove a connection that is closed."""
        self._held.pop(connection, None)


class SlowReader(Protocol):
    """A connection whose peer does not receive its responses."""

    def abort(self, reason: str) -> None:
        """Close the connection immediately and drop the bytes that were not sent."""


class UnsentResponses:
    """Bytes in full transports and in senders behind them, the longest wait first."""

    __slots__ = ("_waiting", "bytes_max", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._waiting: dict[SlowReader, int] = {}

    def add(self, reader: SlowReader, size: int) -> None:
        """Count `size` bytes that wait for `reader`, for which no bytes are counted yet."""
        self._waiting[reader] = size
        self.used += size
        while self.used > self.bytes_max:
            slowest = next(iter(self._waiting))
            self.remove(slowest)
            slowest.abort(
                "its peer does not receive the responses, and the memory for unsent responses "
                "(NetLimits.response_bytes_unsent_max) is used up"
            )

    def remove(self, reader: SlowReader) -> None:
        """Subtract all bytes of `reader`, which were sent or dropped."""
        self.used -= self._waiting.pop(reader, 0)


SECOND_CHANCES_MAX = 16
"""Connections that `ReceivedAhead` skips in one search because the broker holds their requests."""


class EarlySender(Protocol):
    """A connection whose peer has sent more bytes than the requests that may start."""

    @property
    def held_by_broker(self) -> bool:
        """Whether its requests wait for the broker, rather than for the peer."""

    def abort(self, reason: str) -> None:
        """Close the connection immediately and drop the bytes that were not sent."""


class ReceivedAhead:
    """Bytes of torn frames and of requests that may not start, by connection.

    Connections are ordered by age: the time since a request was last taken from the bytes. At the
    limit the oldest connection is closed. A connection that makes progress keeps such bytes only
    for moments. The peer of an old one stopped in the middle of a request, or does not receive its
    responses. A connection whose requests the broker holds back moves to the end of the order
    first, so it is closed only when nearly all connections are held back.
    """

    __slots__ = ("_kept", "bytes_max", "scarce_above", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.scarce_above = bytes_max // 2
        self.used = 0
        self._kept: dict[EarlySender, int] = {}

    def keep(self, connection: EarlySender, size: int, *, renewed: bool) -> None:
        """Set the bytes of `connection` to `size`.

        Args:
            connection: The connection that keeps the bytes.
            size: Bytes that it keeps from now on.
            renewed: Whether it has taken requests since the last call, which makes it the youngest.
        """
        kept = self._kept
        before = kept.pop(connection, 0) if renewed else kept.get(connection, 0)
        self.used += size - before
        kept[connection] = size
        while self.used > self.bytes_max:
            oldest = self._oldest()
            self.remove(oldest)
            oldest.abort(
                "the memory for requests that are received ahead or in part "
                "(NetLimits.received_ahead_bytes_max) is used up, and it has kept some for longest"
            )

    def remove(self, connection: EarlySender) -> None:
        """Subtract all bytes of `connection`."""
        self.used -= self._kept.pop(connection, 0)

    def _oldest(self) -> EarlySender:
        kept = self._kept
        for _ in range(SECOND_CHANCES_MAX):
            oldest = next(iter(kept))
            if not oldest.held_by_broker:
                return oldest
            kept[oldest] = kept.pop(oldest)
        return next(iter(kept))
