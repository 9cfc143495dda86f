"""Operations that wait: each completes exactly once (Kafka's ``DelayedOperation``).

A delayed operation watches partitions. They report to it what may complete it, and it checks its
condition in `try_complete`. Otherwise it completes when its time is up, or ends without completing
because its client is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from odradek.environment.timers import Timer, Timers

OPERATIONS_WAITING_MAX = 10_000
"""Delayed fetches at one time. Beyond it the one that waits for longest completes as if its time
were up. A client that pipelines long polls without reading the responses costs no more memory than
this, and other clients wait as long as they asked for.
"""
PARTITIONS_WAITING_MAX = 250_000
"""Partitions of delayed fetches at one time, of some 500 bytes each. Beyond it the same happens."""


class DelayedOperation:
    """See the module. Used on the event loop only.

    Attributes:
        completed: `on_complete` was called, or will never be.
        timer: Calls `expire` when the time is up; None without a limit.
    """

    __slots__ = ("completed", "timer")

    def __init__(self) -> None:
        self.completed = False
        self.timer: Timer | None = None

    def try_complete(self) -> bool:
        """Complete the operation if its condition holds. Return whether it is completed."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Finish the operation. Called once, and never after `cancel`."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Take into account that the time is up. Called before `on_complete`."""

    def release(self) -> None:
        """Stop watching. Called once, when the operation completes or is cancelled."""
        raise NotImplementedError

    def force_complete(self) -> None:
        """Complete the operation, whether its condition holds or not."""
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
        self.release()


class Purgatory:
    """The operations of one kind that wait. Used on the event loop only."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        waiting_max: int = OPERATIONS_WAITING_MAX,
        partitions_max: int = PARTITIONS_WAITING_MAX,
    ) -> None:
        self.loop = loop
        self._timers = timers
        # The number of partitions of each, in the order in which they came.
        self.waiting: dict[DelayedOperation, int] = {}
        self.partitions = 0
        self._waiting_max = waiting_max
        self._partitions_max = partitions_max
        self._ended = False

    def watch(self, operation: DelayedOperation, timeout_ms: int, partitions: int = 1) -> bool:
        """Have `operation`, which has so many partitions, wait for at most `timeout_ms`.

        Returns False when it has too many partitions, or the broker stops: then it completes in the
        next iteration of the event loop. So do the operations that have to make room for it.
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
        """`operation` waits no longer."""
        self.partitions -= self.waiting.pop(operation, 0)

    def end_all(self) -> None:
        """Complete every operation, now and from now on: the broker stops."""
        self._ended = True
        for operation in tuple(self.waiting):
            operation.force_complete()
