"""Where requests wait: fetches for bytes, produces for the high watermark; each ends exactly once.

A fetch waits until enough bytes were appended to its partitions, or became stable, something
changed there (leader, deletion, disk), its client is gone, or its time is up; then the same read
runs again. Appends are only counted here, and the read runs from the loop's next turn, so that many
appends of one turn cost one read. A produce waits until each of its partitions has committed or
failed, or its time is up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.errors import ErrorCode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from odradek.replication.partition import Partition

# Requests that may wait at one time. Beyond it a fetch is answered with what there is, as if its
# time were up: a client that pipelines long polls without reading answers costs no more memory
# than this.
FETCHES_WAITING_MAX = 10_000


class DelayedFetch:
    """A fetch that waits. `on_ready` is called once, from the loop, unless it is cancelled
    first.
    """

    __slots__ = (
        "_bytes_missing",
        "_done",
        "_on_ready",
        "_partitions",
        "_purgatory",
        "_woken",
        "timer",
    )

    def __init__(
        self,
        purgatory: FetchPurgatory,
        bytes_missing: int,
        on_ready: Callable[[], None],
    ) -> None:
        self._purgatory = purgatory
        self._partitions: list[Partition] = []
        self._bytes_missing = bytes_missing
        self._on_ready = on_ready
        self._woken = False
        self._done = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def ended(self) -> bool:
        """`on_ready` was called, or never will be."""
        return self._done

    def watch(self, partitions: list[Partition], *, stable: bool) -> None:
        """From now on what comes to `partitions` counts, too."""
        if self._done:
            return
        self._partitions += partitions
        for partition in partitions:
            if stable:
                partition.wait_stable(self)
            else:
                partition.fetch_waiters.add(self)

    def appended(self, size_bytes: int) -> None:
        """So many bytes more can be read from one of the partitions."""
        self._bytes_missing -= size_bytes
        if self._bytes_missing <= 0:
            self.wake()

    def wake(self) -> None:
        """Ends the wait on the loop's next turn."""
        if not self._woken:
            self._woken = True
            self._purgatory.loop.call_soon(self.expire)

    def expire(self) -> None:
        """Ends the wait now."""
        if not self._done:
            self.cancel()
            self._on_ready()

    def cancel(self) -> None:
        """Nobody waits any more: forgets the timer and the partitions, calls nothing."""
        if self._done:
            return
        self._done = True
        if self.timer is not None:
            self.timer.cancel()
        for partition in self._partitions:
            partition.fetch_waiters.discard(self)
            partition.stable_waiters.discard(self)
        self._purgatory.waiting.discard(self)


class FetchPurgatory:
    """All fetches that wait. Used on the event loop only."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, waiting_max: int = FETCHES_WAITING_MAX
    ) -> None:
        self.loop = loop
        self.waiting: set[DelayedFetch] = set()
        self._waiting_max = waiting_max
        self._ended = False

    def watch(
        self,
        partitions: list[Partition],
        bytes_missing: int,
        max_wait_ms: int,
        on_ready: Callable[[], None],
        *,
        stable: bool = False,
    ) -> DelayedFetch:
        """Waits for `bytes_missing` more bytes in `partitions`, at most `max_wait_ms`.

        `stable`: only bytes below the last stable offset count.
        """
        delayed = DelayedFetch(self, bytes_missing, on_ready)
        if self._ended or len(self.waiting) >= self._waiting_max:
            delayed.wake()
            return delayed
        self.waiting.add(delayed)
        delayed.watch(partitions, stable=stable)
        delayed.timer = self.loop.call_later(max_wait_ms / 1000, delayed.expire)
        return delayed

    def end_all(self) -> None:
        """The broker stops: every fetch, now and later, is answered with what there is."""
        self._ended = True
        for delayed in tuple(self.waiting):
            delayed.expire()


class DelayedProduce:
    """A produce that waits for its partitions; `on_ready(errors)` is called once.

    `errors` maps each partition that failed to its code; what has committed is not in it.
    """

    __slots__ = ("_errors", "_on_ready", "_partitions", "_timer", "_waiting")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        required_offsets: dict[Partition, int],
        timeout_ms: int | None,
        on_ready: Callable[[dict[Partition, ErrorCode]], None],
    ) -> None:
        self._partitions = tuple(required_offsets)
        self._waiting = set(required_offsets)
        self._errors: dict[Partition, ErrorCode] = {}
        self._on_ready = on_ready
        for partition, offset in required_offsets.items():
            partition.produce_waiters.append((offset, self))
        self._timer = (
            None if timeout_ms is None else loop.call_later(max(timeout_ms, 0) / 1000, self.expire)
        )

    def committed(self, partition: Partition) -> None:
        """The high watermark has passed what this request appended to `partition`."""
        self._partition_done(partition)

    def failed(self, partition: Partition, error: ErrorCode) -> None:
        """`partition` will not commit it any more."""
        self._errors[partition] = error
        self._partition_done(partition)

    def _partition_done(self, partition: Partition) -> None:
        if partition in self._waiting:
            self._waiting.discard(partition)
            if not self._waiting:
                self._end()

    def expire(self) -> None:
        """Time is up: what has not committed is REQUEST_TIMED_OUT; the data stays in the log
        (R3).
        """
        if self._waiting:
            for partition in self._waiting:
                self._errors[partition] = ErrorCode.REQUEST_TIMED_OUT
                partition.produce_waiters = [
                    entry for entry in partition.produce_waiters if entry[1] is not self
                ]
            self._waiting.clear()
            self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._on_ready(self._errors)
