"""The partitions of internal topics as coordinators see them. `ReplicaManager` implements it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.ids import TopicPartition
    from odradek.log.log_append_info import LogAppendInfo
    from odradek.log.unified_log import UnifiedLog
    from odradek.results import Result


class LedPartitions(Protocol):
    """Leadership, logs and appends of the partitions that this broker leads."""

    def led_epoch(self, topic_partition: TopicPartition) -> int | None:
        """Return the epoch in which this broker leads and serves a partition, or None."""

    def log(self, topic_partition: TopicPartition) -> UnifiedLog:
        """Return the log of a partition. Raise KafkaError if this broker does not lead it."""

    def await_committed(
        self, topic_partition: TopicPartition, offset: int, reached: Callable[[int], object]
    ) -> None:
        """Call `reached` with the high watermark when all records below `offset` are committed.

        It is not called if this broker stops leading the partition before.

        Raises:
            KafkaError: This broker does not lead the partition.
        """

    def append_internal(
        self, topic_partition: TopicPartition, batch: bytearray, guard: int, leader_epoch: int
    ) -> Result[LogAppendInfo]:
        """Append a batch in a leader epoch. The result is done when it is committed, or cannot be.

        Args:
            topic_partition: The partition.
            batch: The batch.
            guard: The guard of a transactional batch (`Origin.guard`), 0 for other batches.
            leader_epoch: The epoch. In another one nothing is appended.

        Raises:
            KafkaError: Nothing was appended.
        """


class MarkedPartitions(LedPartitions, Protocol):
    """Partitions in which transactions end."""

    def append_marker(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        *,
        transaction_version: int,
        leader_epoch: int,
    ) -> Result[LogAppendInfo]:
        """Append the marker of a transaction in a leader epoch, as `append_internal`."""
