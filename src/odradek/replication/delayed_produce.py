"""Produce requests that wait for the high watermark (Kafka's ``DelayedProduce``, rule R3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode
from odradek.replication.purgatory import DelayedOperation

if TYPE_CHECKING:
    from odradek.replication.partition import Partition


class DelayedProduce(DelayedOperation):
    """A produce request that waits until each partition has committed its records, or has failed.

    A partition that has not committed the records in time has the error REQUEST_TIMED_OUT. Its
    records stay in the log.

    Args:
        required_offsets: The high watermark that each partition has to reach.
        on_ready: Called with the errors of the partitions that failed.
    """

    __slots__ = ("_errors", "_on_ready", "_waiting")

    def __init__(
        self,
        required_offsets: dict[Partition, int],
        on_ready: Callable[[dict[Partition, ErrorCode]], None],
    ) -> None:
        super().__init__()
        self._waiting = required_offsets
        self._errors: dict[Partition, ErrorCode] = {}
        self._on_ready = on_ready

    def watch(self) -> None:
        """Start to watch the partitions that have not committed the records yet."""
        for partition, offset in tuple(self._waiting.items()):
            if partition.error:
                self.resolve(partition, partition.error)
            elif partition.log.high_watermark >= offset:
                self.resolve(partition, ErrorCode.NONE)
            else:
                partition.watch_produce(self, offset)

    def resolve(self, partition: Partition, error: ErrorCode) -> None:
        """Record that the partition has committed the records, or has failed with `error`."""
        if self._waiting.pop(partition, None) is None:
            return
        if error:
            self._errors[partition] = error
        self.try_complete()

    def try_complete(self) -> bool:
        if not self._waiting:
            self.force_complete()
        return self.completed

    def on_expiration(self) -> None:
        for partition in self._waiting:
            self._errors[partition] = ErrorCode.REQUEST_TIMED_OUT

    def release(self) -> None:
        for partition in self._waiting:
            partition.unwatch_produce(self)

    def on_complete(self) -> None:
        self._on_ready(self._errors)
