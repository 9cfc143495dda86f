"""Operations that wait for other replicas or a flush: Produce and DeleteRecords (rules R3 and R8).

The requests are Kafka's ``DelayedProduce`` and ``DelayedDeleteRecords``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.replication.purgatory import DelayedOperation
from odradek.slicing import begin

if TYPE_CHECKING:
    from odradek.replication.partition import Partition

WATCHES_PER_SLICE = 500
"""Partitions that a produce request begins to watch in one time slice. Each takes 1 to 2 us."""


class DelayedProduce(DelayedOperation):
    """A produce request that waits until each partition has committed its records, or has failed.

    A partition that has not committed the records in time has the error REQUEST_TIMED_OUT. Its
    records stay in the log. The time is not up before the request watches all partitions. Otherwise
    a partition that has committed the records before its time slice would have this error, too.

    Args:
        required_offsets: The offset after the last record in each partition.
        on_ready: Called with the errors of the partitions that failed.
        committed: Whether the records have to be committed. Otherwise only flushes that are due
            have to cover them.
    """

    __slots__ = ("_committed", "_errors", "_is_late", "_is_watching", "_on_ready", "_waiting")

    def __init__(
        self,
        required_offsets: dict[Partition, int],
        on_ready: Callable[[dict[Partition, ErrorCode]], None],
        *,
        committed: bool = True,
    ) -> None:
        super().__init__()
        self._committed = committed
        self._waiting = required_offsets
        self._errors: dict[Partition, ErrorCode] = {}
        self._on_ready = on_ready
        self._is_watching = False
        self._is_late = False

    def watch(self, partitions: Sequence[Partition] | None = None) -> None:
        """Start to watch the partitions that have not committed the records yet.

        Args:
            partitions: Those of one time slice. Default: all, in time slices if they are many.
        """
        if partitions is None:
            partitions = tuple(self._waiting)
            if len(partitions) > WATCHES_PER_SLICE:
                self._is_watching = True
                begin(self._watching(partitions), "the wait of a produce request")
                return
        for partition in partitions:
            offset = self._waiting[partition]
            code = partition.acknowledgement(offset, committed=self._committed)
            if code is None:
                partition.watch_produce(self, offset, committed=self._committed)
            else:
                self.resolve(partition, code)

    def _watching(self, partitions: Sequence[Partition]) -> Generator[None, None, None]:
        """Start to watch many partitions in time slices.

        A partition whose leader epoch changes before its slice fails. Its log may have been
        truncated since, so its high watermark may belong to other records.
        """
        epochs = [partition.leader_epoch for partition in partitions]
        for start in range(0, len(partitions), WATCHES_PER_SLICE):
            if start:
                yield
            if self.completed:
                return
            led = []
            for at in range(start, min(start + WATCHES_PER_SLICE, len(partitions))):
                if partitions[at].leader_epoch == epochs[at]:
                    led.append(partitions[at])
                else:
                    self.resolve(partitions[at], ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.watch(led)
        self._is_watching = False
        if self._is_late:
            self.expire()

    def resolve(self, partition: Partition, error: ErrorCode) -> None:
        """Record that the partition has committed the records, or has failed with `error`."""
        if self._waiting.pop(partition, None) is None or self.completed:
            return
        if error:
            self._errors[partition] = error
        self.try_complete()

    def try_complete(self) -> bool:
        if not self._waiting:
            self.force_complete()
        return self.completed

    def expire(self) -> None:
        if self._is_watching:
            self._is_late = True
        else:
            super().expire()

    def on_expiration(self) -> None:
        self._errors.update(dict.fromkeys(self._waiting, ErrorCode.REQUEST_TIMED_OUT))

    def release(self) -> None:
        partitions = tuple(self._waiting)
        if len(partitions) > WATCHES_PER_SLICE:
            begin(self._releasing(partitions), "the end of a produce request")
        else:
            for partition in partitions:
                partition.unwatch_produce(self)

    def _releasing(self, partitions: Sequence[Partition]) -> Generator[None, None, None]:
        for ended, partition in enumerate(partitions):
            if ended and not ended % WATCHES_PER_SLICE:
                yield
            partition.unwatch_produce(self)

    def on_complete(self) -> None:
        self._on_ready(self._errors)


class HighWatermarkWait:
    """A coordinator that waits until all records below an offset are committed.

    It has no time limit. It ends without a call when the broker stops leading the partition.

    Args:
        offset: The offset.
        reached: Called with the high watermark.
    """

    __slots__ = ("_offset", "_reached")

    def __init__(self, offset: int, reached: Callable[[int], object]) -> None:
        self._offset = offset
        self._reached = reached

    def watch(self, partition: Partition) -> None:
        """Start to wait in a partition that this broker leads."""
        if partition.log.high_watermark >= self._offset:
            self._reached(partition.log.high_watermark)
        else:
            partition.watch_produce(self, self._offset)

    def resolve(self, partition: Partition, error: ErrorCode) -> None:
        """End the wait: the high watermark has reached the offset, or the leadership has ended.

        Too few in-sync replicas are no reason to wait any longer: the records are committed.
        """
        if partition.log.high_watermark >= self._offset:
            self._reached(partition.log.high_watermark)


class DelayedDeleteRecords(DelayedOperation):
    """A deletion of records in one partition, which waits for the low watermark.

    A deletion that the other replicas do not confirm in time has the error REQUEST_TIMED_OUT. The
    leader has deleted the records.

    Args:
        partition: The partition.
        offset: The low watermark that the partition has to reach.
        on_ready: Called with the error.
    """

    __slots__ = ("_error", "_offset", "_on_ready", "_partition")

    def __init__(
        self, partition: Partition, offset: int, on_ready: Callable[[ErrorCode], None]
    ) -> None:
        super().__init__()
        self._partition = partition
        self._offset = offset
        self._on_ready = on_ready
        self._error = ErrorCode.NONE

    def watch(self) -> None:
        """Start to wait, or complete if the low watermark has reached the offset."""
        if not self.try_complete():
            self._partition.watch_low_watermark(self, self._offset)

    def resolve(self, _: Partition, error: ErrorCode) -> None:
        """Record that the low watermark has reached the offset, or that the partition failed."""
        self._error = error
        self.force_complete()

    def try_complete(self) -> bool:
        if self._partition.low_watermark >= self._offset:
            self.force_complete()
        return self.completed

    def on_expiration(self) -> None:
        self._error = ErrorCode.REQUEST_TIMED_OUT

    def release(self) -> None:
        self._partition.unwatch_low_watermark(self)

    def on_complete(self) -> None:
        self._on_ready(self._error)
