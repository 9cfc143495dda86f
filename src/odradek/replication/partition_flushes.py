"""The flushes of logs for `flush.messages` and `flush.ms`, one at a time for each partition.

A flush acknowledges all records that were appended before it began (group commit). An error of the
disk ends the flushes of the partition. After any other error the flush is tried again, and after
some attempts the broker hands over the leaderships of the log directory.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from odradek.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from odradek.environment.timers import Timers
    from odradek.replication.partition import Partition

FLUSH_ATTEMPTS_BEFORE_HANDOVER = 10
"""Failed attempts to flush a log until the broker hands over the leaderships of its directory."""
FLUSH_RETRY_S = 1.0

logger = logging.getLogger(__name__)


class PartitionFlushes:
    """Owner of the tasks that flush logs. Used on the event loop only.

    Args:
        executor: Runs fsync.
        loop: The event loop.
        timers: Timers for the pauses before further attempts.
        fail_partition: Called with a partition whose log cannot be flushed.
    """

    def __init__(
        self,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        fail_partition: Callable[[Partition], None],
    ) -> None:
        self._executor = executor
        self._loop = loop
        self._timers = timers
        self._fail_partition = fail_partition
        self._running: dict[Partition, asyncio.Task[None]] = {}

    def start(self, partition: Partition, refused: int = 0) -> None:
        """Flush the log in the executor. If a flush is running, it is followed by another one."""
        if partition not in self._running:
            self._running[partition] = self._loop.create_task(self._flush(partition, refused))

    async def ended(self) -> None:
        """Wait for the running flushes, but not for their repetitions, which may never succeed."""
        if flushes := tuple(self._running.values()):
            await asyncio.wait(flushes)

    async def cancel_all(self) -> None:
        """Leave the running flushes to their threads."""
        if flushes := tuple(self._running.values()):
            for flush in flushes:
                flush.cancel()
            await asyncio.wait(flushes)

    async def _flush(self, partition: Partition, refused: int) -> None:
        """Flush while a flush is due and the partition is not stopped, after `refused` attempts."""
        log, is_refused = partition.log, False
        try:
            if refused:
                await self._timers.sleep(FLUSH_RETRY_S)
            while partition.flush_due_offset:
                # Records that are appended from here on may not be covered by this flush.
                end_offset, leader_epoch = log.log_end_offset, partition.leader_epoch
                try:
                    await self._loop.run_in_executor(self._executor, log.flush)
                except Exception as error:
                    if log.closed or log.log_dir.offline or isinstance(error, OSError):
                        raise
                    refused, is_refused = refused + 1, True
                    self._flush_refused(partition, refused, error)
                    break
                refused = 0
                if partition.leader_epoch == leader_epoch:
                    partition.flushed(end_offset)
                # Otherwise the records of that epoch may have been replaced by unflushed ones.
        except Exception as error:
            is_bug = not isinstance(error, OSError | KafkaError)
            if log.closed and not log.log_dir.offline and not is_bug:
                return  # the topic was deleted during the flush
            logger.error(
                "flushing %s failed: %s. Its requests get KAFKA_STORAGE_ERROR until the broker is "
                "started again",
                partition.topic_partition,
                error,
                exc_info=error if is_bug else None,
            )
            self._fail_partition(partition)
        finally:
            del self._running[partition]
        if is_refused:
            self.start(partition, refused)

    @staticmethod
    def _flush_refused(partition: Partition, attempts: int, error: Exception) -> None:
        """Log the first of some failed attempts. Hand over the leaderships after the last one."""
        if attempts % FLUSH_ATTEMPTS_BEFORE_HANDOVER == 1:
            if isinstance(error, KafkaError):
                logger.warning("%s. The flush is tried again", error)
            else:
                logger.error(
                    "bug in the flush of %s. It is tried again. Report the traceback",
                    partition.topic_partition,
                    exc_info=error,
                )
        if not attempts % FLUSH_ATTEMPTS_BEFORE_HANDOVER:
            partition.log.log_dir.flush_refused()
