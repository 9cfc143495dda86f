"""Deletion of topics: recorded in the metadata first, then carried out on this broker's logs.

The controller records a deletion, with the topic's id, in the write that removes the topic. A
broker renames the directories of the topic's partitions, syncs the log directories, and then
reports the deletion as finished. The controller removes the record. A crash in between leaves the
record, and the next start finishes the deletion.

A log is deleted only for a recorded deletion. A log that the metadata does not know keeps its
directory. It gets another name (``topic-0.<uuid>-stray``, as in Kafka) when a new topic needs the
name.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from odradek.errors import KafkaError
from odradek.ids import TopicName

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Generator, Sequence
    from concurrent.futures import Executor

    from odradek.ids import TopicPartition, Uuid
    from odradek.log.directories.log_manager import LogManager
    from odradek.metadata.image import MetadataImage

LOGS_DELETED_A_SLICE = 20
"""Logs deleted in one time slice: each one's directory is renamed."""
LOGS_NAMED_MAX = 10
"""Logs that one warning names."""

logger = logging.getLogger(__name__)


class TopicDeletions:
    """Owner of the deletions that this broker carries out. Used on the event loop only.

    Args:
        finished: Called with the ids of topics whose logs are gone and cannot come back.
    """

    def __init__(
        self,
        log_manager: LogManager,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
        finished: Callable[[Collection[Uuid]], None],
    ) -> None:
        self._log_manager = log_manager
        self._executor = executor
        self._loop = loop
        self._finished = finished
        # Their logs are renamed, but the log directories are not synced yet.
        self._unsynced: list[Uuid] = []
        self._syncing: asyncio.Task[None] | None = None

    def delete(self, topic_id: Uuid, logs: Sequence[TopicPartition]) -> Generator[None, None, None]:
        """Delete the logs of a topic whose deletion is recorded, some in each time slice."""
        renamed = failed = False
        for start in range(0, len(logs), LOGS_DELETED_A_SLICE):
            if start:
                yield
            try:
                renamed |= self._log_manager.delete(*logs[start : start + LOGS_DELETED_A_SLICE])
            except KafkaError as error:
                # The log directory is offline now. The next start finds the record.
                logger.warning("deleting the logs of a topic failed: %s", error)
                failed = True
        if failed:
            return
        if renamed:
            self._sync([topic_id])
        else:
            self._finished([topic_id])

    def settle_conflicts(self, image: MetadataImage) -> Generator[None, None, None]:
        """Leave one log to each partition that has several, of topics of its name (at the start).

        A topic was deleted and created again while a log directory was offline. Now the directory
        is back with the old log. The log of the topic in `image` is used.
        """
        for key, logs in self._log_manager.conflicting_logs().items():
            yield
            topic = image.topics_by_name.get(TopicName(key.topic))
            used = None
            for log in logs:
                if topic is not None and log.topic_id == topic.topic_id:
                    used = log
                    continue
                self._log_manager.use(log)
                if log.topic_id in image.deletions:
                    self._delete_conflicting(key)
                else:
                    self.set_aside(key, "it does not belong to the topic that has its name")
            if used is not None:
                self._log_manager.use(used)

    def _delete_conflicting(self, key: TopicPartition) -> None:
        logger.info("finishing the deletion of a log of %s", key)
        try:
            self._log_manager.delete(key)
        except KafkaError as error:
            # The log directory is offline now. The next start finds the record.
            logger.warning("deleting the logs of a topic failed: %s", error)

    def finish_recorded(self, image: MetadataImage) -> Generator[None, None, None]:
        """Finish the deletions that the store records at the start, before any log is used."""
        recorded = image.deletions
        if not recorded:
            return
        names = frozenset(recorded.values())
        deleted: list[TopicPartition] = []
        for log in self._log_manager.all_logs():
            key = log.topic_partition
            if log.topic_id in recorded:
                deleted.append(key)
            elif log.topic_id is None and key.topic in names:
                # Nothing of it was ever flushed, or the topic id would be on the disk.
                self.set_aside(key, "it has no topic id, and a topic of this name was deleted")
        if deleted:
            logger.info("finishing the deletion of %d logs", len(deleted))
        for start in range(0, len(deleted), LOGS_DELETED_A_SLICE):
            yield
            try:
                self._log_manager.delete(*deleted[start : start + LOGS_DELETED_A_SLICE])
            except KafkaError as error:
                logger.warning("finishing the deletion of topics failed: %s", error)
                return
        # Always: the renames of the run before may not be on the disk.
        self._sync(recorded)

    def set_aside(self, key: TopicPartition, reason: str) -> None:
        """Rename the log's directory, so that its name is free and its records are kept."""
        try:
            path = self._log_manager.set_aside(key)
        except KafkaError as error:
            # The log directory is offline now: nothing of it is served.
            logger.warning("the log of %s cannot be set aside: %s", key, error)
            return
        if path is not None:
            logger.warning(
                "the log of %s is not used: %s. Its files are kept in %s. Remove that directory "
                "if you do not need the records.",
                key,
                reason,
                path,
            )

    def report_unknown(self, known: Collection[tuple[str, int]]) -> None:
        """Log which logs belong to no partition that the metadata assigns to this broker."""
        unknown = sorted(
            str(log.topic_partition)
            for log in self._log_manager.all_logs()
            if log.topic_partition not in known
        )
        if unknown:
            logger.warning(
                "%d logs belong to no partition of this broker, and stay as they are: %s%s",
                len(unknown),
                ", ".join(unknown[:LOGS_NAMED_MAX]),
                ", ..." if len(unknown) > LOGS_NAMED_MAX else "",
            )

    def _sync(self, topic_ids: Collection[Uuid]) -> None:
        self._unsynced += topic_ids
        if self._syncing is None:
            self._syncing = self._loop.create_task(self._sync_all())

    async def _sync_all(self) -> None:
        """Sync the log directories; one sync covers all deletions before it."""
        try:
            while self._unsynced:
                topic_ids, self._unsynced = self._unsynced, []
                work = self._log_manager.sync_directories
                await self._loop.run_in_executor(self._executor, work)
                self._finished(topic_ids)
        except KafkaError as error:
            logger.warning("the next start finishes the deletion of topics: %s", error)
        finally:
            self._syncing = None

    async def stop(self) -> None:
        """Wait for the sync that runs."""
        if self._syncing is not None:
            await self._syncing
