"""Delayed operations, each of which completes exactly once (Kafka's ``DelayedOperation``).

A delayed operation watches partitions. The partitions report events that may complete it, and
`try_complete` checks its condition. An operation whose condition is not met in time completes when
its time is up. It is cancelled without completing when its client disconnects.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from odradek.environment.clock import Clock
    from odradek.environment.timers import Timer, Timers

OPERATIONS_WAITING_MAX = 10_000
"""Maximum number of delayed fetches. When it is exceeded, the oldest fetch completes as if its time
were up. This bounds the memory of a client that pipelines long polls without reading the responses.
Other clients wait as long as they requested.
"""
PARTITIONS_WAITING_MAX = 250_000
"""Maximum number of partitions of all delayed fetches, of some 500 bytes each. When it is exceeded,
the oldest fetch completes as well.
"""

DEADLINE_TICK_MS = 100
"""The precision of long timeouts in `Deadlines`."""
EXACT_BELOW_MS = 1_000
"""A shorter timeout has a timer of its own."""
EXPIRATIONS_PER_SLICE = 50
"""Operations of `Deadlines` that expire in one time slice. Each of them sends a response."""


class DelayedOperation:
    """Base class of delayed operations; see the module. Used on the event loop only.

    Attributes:
        completed: `on_complete` was called, or will never be called.
        timer: Calls `expire` when the time is up. None if there is no time limit.
    """

    __slots__ = ("completed", "timer")

    def __init__(self) -> None:
        self.completed = False
        self.timer: Timer | None = None

    def try_complete(self) -> bool:
        """Complete the operation if its condition holds. Return whether it is completed."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Finish the operation. Called once at most, and never after `cancel`."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Handle the expiration. Called before `on_complete` when the time is up."""

    def release(self) -> None:
        """Stop watching. Called once, when the operation completes or is cancelled."""
        raise NotImplementedError

    def force_complete(self) -> None:
        """Complete the operation, whether or not its condition holds."""
        if not self.completed:
            self.cancel()
            self.on_complete()

    def expire(self) -> None:
        """Complete the operation because its time is up."""
        if not self.completed:
            self.on_expiration()
            self.force_complete()

    def cancel(self) -> None:
        """End the operation without completing it."""
        if self.completed:
            return
        self.completed = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None  # it refers to the operation: no reference cycle is left
        self.release()


class Deadlines:
    """The deadlines of many operations, with one timer for all of the same `DEADLINE_TICK_MS`.

    Most produce requests end long before their timeout. A timer for each of them, which is set and
    cancelled, would cost more than the rest of the wait. A deadline is late by one tick at most.
    """

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._ticks: dict[int, dict[DelayedOperation, None]] = {}

    def add(self, operation: DelayedOperation, timeout_ms: int) -> None:
        """Expire the operation after `timeout_ms`, unless it completes before."""
        if timeout_ms < EXACT_BELOW_MS:
            delay_s = max(timeout_ms, 0) / 1000
            operation.timer = self._timers.call_later(delay_s, operation.expire)
            return
        now_ms = self._clock.monotonic_ms()
        tick = int(now_ms + timeout_ms) // DEADLINE_TICK_MS + 1
        operations = self._ticks.get(tick)
        if operations is None:
            operations = self._ticks[tick] = {}
            self._timers.call_later((tick * DEADLINE_TICK_MS - now_ms) / 1000, self._expire, tick)
        operations[operation] = None
        operation.timer = _Deadline(operations, operation)

    def _expire(self, tick: int) -> None:
        self._expire_some(self._ticks.pop(tick, {}))

    def _expire_some(self, operations: dict[DelayedOperation, None]) -> None:
        for operation in tuple(islice(operations, EXPIRATIONS_PER_SLICE)):
            operations.pop(operation, None)
            operation.expire()
        if operations:
            self._timers.call_later(0, self._expire_some, operations)


class _Deadline:
    """A deadline in `Deadlines`."""

    __slots__ = ("_operation", "_operations")

    def __init__(
        self, operations: dict[DelayedOperation, None], operation: DelayedOperation
    ) -> None:
        self._operations = operations
        self._operation = operation

    def cancel(self) -> None:
        self._operations.pop(self._operation, None)


class Purgatory:
    """The delayed operations of one kind. Used on the event loop only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        waiting_max: int = OPERATIONS_WAITING_MAX,
        partitions_max: int = PARTITIONS_WAITING_MAX,
    ) -> None:
        self.loop = loop
        self._timers = timers
        # The number of partitions of each operation, in the order of arrival.
        self.waiting: dict[DelayedOperation, int] = {}
        self.partitions = 0
        self._waiting_max = waiting_max
        self._partitions_max = partitions_max
        self._ended = False

    def watch(self, operation: DelayedOperation, timeout_ms: int, partitions: int = 1) -> bool:
        """Delay `operation`, which watches `partitions` partitions, for at most `timeout_ms`.

        If there is no room for it, the oldest operations complete in the next iteration of the
        event loop.

        Returns:
            False when the operation has too many partitions, or when the broker stops. The
            operation then completes in the next iteration of the event loop.
        """
        if self._ended or partitions > self._partitions_max:
            self.loop.call_soon(operation.force_complete)
            return False
        waiting = self.waiting
        self.partitions += partitions
        while waiting and (
            len(waiting) >= self._waiting_max or self.partitions > self._partitions_max
        ):
            oldest = next(iter(waiting))
            self.forget(oldest)
            self.loop.call_soon(oldest.force_complete)
        waiting[operation] = partitions
        operation.timer = self._timers.call_later(max(timeout_ms, 0) / 1000, operation.expire)
        return True

    def forget(self, operation: DelayedOperation) -> None:
        """Remove `operation`, which is no longer delayed."""
        self.partitions -= self.waiting.pop(operation, 0)

    def end_all(self) -> None:
        """Complete every delayed operation, and each later one immediately: the broker stops."""
        self._ended = True
        for operation in tuple(self.waiting):
            operation.force_complete()
