"""DeleteRecords in the partitions that this broker leads, and the delayed requests."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode, KafkaError
from odradek.replication.delayed_produce import DelayedDeleteRecords
from odradek.results import PendingResult, Result
from odradek.slicing import ELEMENTS_PER_SLICE

if TYPE_CHECKING:
    from odradek.replication.partition import Partition
    from odradek.replication.purgatory import Deadlines


class RecordDeletions:
    """The delayed DeleteRecords requests of a broker. Owned by `ReplicaManager`.

    Args:
        deadlines: The time limits of the requests.
    """

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._delayed: dict[DelayedDeleteRecords, None] = {}

    def delete(self, partition: Partition, offset: int, timeout_ms: int) -> Result[int]:
        """Delete the records below `offset`, as `ReplicaManager.delete_records`.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION, POLICY_VIOLATION or OFFSET_OUT_OF_RANGE.
        """
        log = partition.log
        if partition.internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not log.config.cleanup_delete:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        if offset == -1:
            offset = log.high_watermark
        if not 0 <= offset <= log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is outside 0..{log.high_watermark} of {partition.topic_partition}",
            )
        if offset > log.log_start_offset:
            log.delete_records(offset)
            partition.log_start_offset_raised()
        low_watermark = partition.low_watermark
        if low_watermark >= offset:
            return Result(low_watermark)
        return self._wait_deleted(partition, offset, timeout_ms)

    def _wait_deleted(self, partition: Partition, offset: int, timeout_ms: int) -> Result[int]:
        deleted: PendingResult[int] = PendingResult()

        def finish(error: ErrorCode) -> None:
            self._delayed.pop(delayed, None)
            if error:
                deleted.fail(KafkaError(error))
            else:
                deleted.complete(partition.low_watermark)

        delayed = DelayedDeleteRecords(partition, offset, finish)
        self._deadlines.add(delayed, timeout_ms)
        self._delayed[delayed] = None
        delayed.watch()
        return deleted

    def brokers_changed(self) -> Generator[None, None, None]:
        """Complete the requests that wait for fewer replicas, because a broker was fenced."""
        for count, delayed in enumerate(tuple(self._delayed), 1):
            if not delayed.completed:
                delayed.try_complete()
            if not count % ELEMENTS_PER_SLICE:
                yield
