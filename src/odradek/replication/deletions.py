"""Deletion of topics: recorded in the metadata first, then carried out on this broker's logs.

The controller records a deletion, with the topic's id, in the write that removes the topic. A
broker renames the directories of the topic's partitions, syncs the log directories, and then
reports the deletion as finished. The controller then removes the record. After a crash in between
the record still exists, and the next start finishes the deletion.

A log is deleted only if its deletion is recorded. A log that is not in the metadata keeps its
directory. If a new topic needs the name, the old directory is renamed (``topic-0.<uuid>-stray``, as
in Kafka).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from odradek.errors import KafkaError
from odradek.ids import TopicName
from odradek.slicing import ELEMENTS_PER_SLICE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping, Sequence
    from concurrent.futures import Executor

    from odradek.environment.timers import Timers
    from odradek.ids import TopicPartition, Uuid
    from odradek.log.directories.log_manager import LogManager
    from odradek.metadata.image import MetadataImage, TopicDeletion

LOGS_DELETED_A_SLICE = 10
"""Logs deleted in one time slice. The directory of each log is renamed."""
LOGS_NAMED_MAX = 10
"""Maximum number of logs that one warning names."""
SYNC_RETRY_S = 10.0
"""Delay after a sync of the log directories that failed for lack of descriptors."""

logger = logging.getLogger(__name__)


class TopicDeletions:
    """Owner of the deletions that this broker carries out. Used on the event loop only.

    Args:
        finished: Called with the ids of topics whose logs are deleted durably: they cannot
            reappear after a power cut.
    """

    def __init__(
        self,
        log_manager: LogManager,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
        timers: Timers,
        finished: Callable[[Collection[Uuid]], None],
    ) -> None:
        self._log_manager = log_manager
        self._executor = executor
        self._loop = loop
        self._timers = timers
        self._finished = finished
        # Topics whose logs are renamed, but whose log directories are not synced yet.
        self._unsynced: list[Uuid] = []
        self._syncing: asyncio.Task[None] | None = None
        self._delay: asyncio.Task[None] | None = None
        self._stopping = False

    def delete(self, topic_id: Uuid, logs: Sequence[TopicPartition]) -> Generator[None, None, None]:
        """Delete the logs of a topic whose deletion is recorded, some in each time slice."""
        renamed = failed = False
        for start in range(0, len(logs), LOGS_DELETED_A_SLICE):
            if start:
                yield
            try:
                renamed |= self._log_manager.delete(*logs[start : start + LOGS_DELETED_A_SLICE])
            except KafkaError as error:
                # The log directory is offline now. The next start finds the recorded deletion.
                logger.warning(
                    "deleting the logs of topic %s failed: %s. The next start tries again",
                    logs[start].topic,
                    error,
                )
                failed = True
        if failed:
            return
        if renamed:
            self._sync([topic_id])
        else:
            self._finished([topic_id])

    def settle_conflicts(self, image: MetadataImage) -> Generator[None, None, None]:
        """At the start, select one log for each partition that has logs of several topics.

        This happens when a topic was deleted and created again while a log directory was offline.
        Now the directory is online again with the old log. The log of the topic in `image` is used.
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
                    self.set_aside(key, "it belongs to another topic than the one of that name")
            if used is not None:
                self._log_manager.use(used)

    def _delete_conflicting(self, key: TopicPartition) -> None:
        logger.info("finishing the deletion of a log of %s", key)
        try:
            self._log_manager.delete(key)
        except KafkaError as error:
            # The log directory is offline now. The next start finds the recorded deletion.
            logger.warning("deleting %s failed: %s. The next start tries again", key, error)

    def finish_recorded(
        self, recorded: Mapping[Uuid, TopicDeletion]
    ) -> Generator[None, None, None]:
        """Finish recorded deletions of topics that have no partitions here.

        At the start these are all that the metadata records, before any log is used.
        """
        if not recorded:
            return
        names = frozenset(deletion.name for deletion in recorded.values())
        deleted: list[TopicPartition] = []
        for log in self._log_manager.all_logs():
            key = log.topic_partition
            if log.topic_id in recorded:
                deleted.append(key)
            elif log.topic_id is None and key.topic in names:
                # None of its data was ever flushed, or the topic id would be on the disk.
                self.set_aside(key, "it has no topic id, and a topic of this name was deleted")
        if deleted:
            logger.info("finishing the deletion of %d logs", len(deleted))
        for start in range(0, len(deleted), LOGS_DELETED_A_SLICE):
            yield
            try:
                self._log_manager.delete(*deleted[start : start + LOGS_DELETED_A_SLICE])
            except KafkaError as error:
                logger.warning(
                    "finishing the deletion of topic %s failed: %s. The next start tries again",
                    deleted[start].topic,
                    error,
                )
                return
        # Always sync, because the renames of the previous run may not be on the disk.
        self._sync(recorded)

    def set_aside(self, key: TopicPartition, reason: str) -> None:
        """Rename the log's directory. Its name becomes free and its records are kept."""
        try:
            path = self._log_manager.set_aside(key)
        except KafkaError as error:
            # The log directory is offline now, so the log is not served.
            logger.warning("the log of %s cannot be set aside: %s. It is not used", key, error)
            return
        if path is not None:
            logger.warning(
                "the log of %s is not used: %s. Its files are kept in %s. Remove that directory "
                "if you do not need the records.",
                key,
                reason,
                path,
            )

    def set_aside_unknown(self, known: Collection[tuple[str, int]]) -> Generator[None, None, None]:
        """Set the logs aside that belong to no partition of this broker in a cluster.

        The metadata of a cluster does not depend on this broker. The replica was moved, or the
        directory was copied here.
        """
        unknown = []
        for count, log in enumerate(self._log_manager.all_logs(), 1):
            if log.topic_partition not in known:
                unknown.append(log.topic_partition)
            if not count % ELEMENTS_PER_SLICE:
                yield
        for count, key in enumerate(sorted(unknown), 1):
            self.set_aside(key, "the metadata has no replica of it on this broker")
            if not count % LOGS_DELETED_A_SLICE:
                yield

    def report_unknown(self, known: Collection[tuple[str, int]]) -> None:
        """Log which logs belong to partitions that the metadata does not assign to this broker."""
        unknown = sorted(
            str(log.topic_partition)
            for log in self._log_manager.all_logs()
            if log.topic_partition not in known
        )
        if unknown:
            logger.warning(
                "%d logs belong to no partition of this broker and are left unchanged: %s%s. "
                "Remove their directories if you do not need the records",
                len(unknown),
                ", ".join(unknown[:LOGS_NAMED_MAX]),
                ", ..." if len(unknown) > LOGS_NAMED_MAX else "",
            )

    def _sync(self, topic_ids: Collection[Uuid]) -> None:
        self._unsynced += topic_ids
        if self._syncing is None:
            self._syncing = self._loop.create_task(self._sync_all())

    async def _sync_all(self) -> None:
        """Sync the log directories. One sync covers all deletions before it."""
        try:
            while self._unsynced:
                topic_ids, self._unsynced = self._unsynced, []
                work = self._log_manager.sync_directories
                try:
                    await self._loop.run_in_executor(self._executor, work)
                except Exception as error:  # noqa: BLE001 - it is logged with its traceback
                    if self._can_repeat(error):
                        self._unsynced += topic_ids
                        logger.warning("%s. The sync is tried again", error)
                        await self._pause()
                    else:
                        self._sync_failed(error, len(topic_ids))
                else:
                    self._finished(topic_ids)
        finally:
            self._syncing = None

    def _can_repeat(self, error: Exception) -> bool:
        """Return whether the process had no free descriptor, so that each directory is online."""
        if self._stopping or not isinstance(error, KafkaError):
            return False
        return not any(log_dir.offline for log_dir in self._log_manager.log_dirs)

    async def _pause(self) -> None:
        delay = self._delay = self._loop.create_task(self._timers.sleep(SYNC_RETRY_S))
        await asyncio.wait([delay])
        self._delay = None

    @staticmethod
    def _sync_failed(error: Exception, count: int) -> None:
        is_bug = not isinstance(error, KafkaError)
        logger.warning(
            "syncing the log directories failed: %s. The next start finishes the deletion of "
            "%d topics",
            error,
            count,
            exc_info=error if is_bug else None,
        )

    async def stop(self) -> None:
        """Wait for the sync in progress. A sync that is refused is left to the next start."""
        self._stopping = True
        if self._delay is not None:
            self._delay.cancel()
        if self._syncing is not None:
            await self._syncing
