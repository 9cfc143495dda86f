"""Lookup of one offset of a partition, by timestamp or by a special timestamp.

Kafka: ``Partition.fetchOffsetForTimestamp``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode, KafkaError
from odradek.log.timestamps import TimestampOffset, offset_for_timestamp, offset_of_max_timestamp

if TYPE_CHECKING:
    from odradek.offloading import WorkRunner
    from odradek.replication.fetch_data import FetchIsolation
    from odradek.replication.partition import Partition

logger = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

NOT_FOUND = TimestampOffset(-1, -1, -1)


class OffsetLookup:
    """The lookup of an offset below the end that the reader may read.

    The end is taken when the lookup is created. A new leader may not know the true end yet (rule
    R6). The latest offset, and a timestamp whose record is not below the end, then have the error
    OFFSET_NOT_AVAILABLE.
    """

    __slots__ = ("_end_offset", "_is_behind", "_partition", "_timestamp")

    def __init__(self, partition: Partition, timestamp: int, isolation: FetchIsolation) -> None:
        self._partition = partition
        self._timestamp = timestamp
        self._end_offset = partition.end_offset(isolation)
        self._is_behind = partition.is_behind_epoch(isolation)

    def known(self) -> TimestampOffset | None:
        """Return the offset with timestamp -1, or None if records have to be read for it.

        Raises:
            KafkaError: OFFSET_NOT_AVAILABLE.
        """
        partition = self._partition
        if self._timestamp == LATEST:
            if self._is_behind:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return TimestampOffset(-1, self._end_offset, partition.leader_epoch)
        if self._timestamp in (EARLIEST, EARLIEST_LOCAL):
            return TimestampOffset(-1, partition.log_start_offset, partition.earliest_epoch)
        return NOT_FOUND if self._timestamp == LATEST_TIERED else None

    async def search(self, runner: WorkRunner) -> TimestampOffset:
        """Read records, and return the offset or `NOT_FOUND`. Files are read on `runner`'s threads.

        Raises:
            KafkaError: The partition's error, KAFKA_STORAGE_ERROR when a file cannot be read, or
                OFFSET_NOT_AVAILABLE.
        """
        partition = self._partition
        log = partition.log
        if self._timestamp == MAX_TIMESTAMP:
            work = offset_of_max_timestamp(log)
        else:
            work = offset_for_timestamp(log, self._timestamp)
        try:
            found = await runner.run(work)
        except OSError as error:
            logger.warning(
                "offset lookup in %s failed: %s. The client gets an error",
                log.topic_partition,
                error,
            )
            raise KafkaError(partition.error or ErrorCode.KAFKA_STORAGE_ERROR) from error
        if partition.error:
            # The partition was deleted during the lookup. The records that were read may belong to
            # a new topic of the same name.
            raise KafkaError(partition.error)
        if found is not None and found.offset < self._end_offset:
            return found
        if found is not None and self._is_behind:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return NOT_FOUND
