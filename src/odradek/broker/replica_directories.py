"""Reports of the log directories of this broker's replicas, for the elections of the controller.

A broker with several log directories reports each of its replicas once (KIP-858). If it starts
without one of the directories later, the controller knows which replicas are lost. With a single
directory the controller needs no report until this broker cannot write a replica.

A replica in a directory that has failed is reported with that directory, and loses its leadership.
A leader on a full disk is reported in an unknown directory if it has in-sync followers. A replica
that was reported is reported again when it is in another directory, or can be written again.

A broker whose last log directory has failed stops. It reports the failure before, so that its next
start does not count as clean, and waits until the controller has recorded it. The wait ends earlier
when the operator stops the broker. Its partitions are stopped by then and acknowledge nothing.

A report reaches the controller late when this broker is cut off. It may be out of date by then. The
metadata shows that, and the broker corrects it (`ReplicaDirectories.apply`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Executor
from enum import Enum
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import LOST_DIRECTORY, ZERO_UUID, BrokerId, Uuid
from odradek.slicing import ELEMENTS_PER_SLICE, begin, in_slices

if TYPE_CHECKING:
    from odradek.broker.cluster_member import ClusterMember
    from odradek.broker.heartbeats import Replica
    from odradek.environment.timers import Timers
    from odradek.log.directories.log_manager import LogManager
    from odradek.log.log_dir import LogDir
    from odradek.metadata.delta import MetadataDelta
    from odradek.metadata.image import MetadataImage, PartitionImage
    from odradek.replication.partition import Partition
    from odradek.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


SPACE_CHECK_MS = 1_000
"""Interval of the checks of a full disk."""
FREE_BYTES_MIN = 64 * 1024 * 1024
"""Free space with which a disk that was full counts as writable again."""


class Storage(Enum):
    """Whether a log directory can be written."""

    WRITABLE = "writable"
    FULL = "full"
    OFFLINE = "offline"


def replica_report(
    image: PartitionImage,
    broker: BrokerId,
    directory: Uuid | None,
    storage: Storage,
    *,
    reports_all: bool = False,
) -> Uuid | None:
    """Return the directory to report for a replica, or None if no report is necessary. Pure.

    A replica without in-sync followers is not reported in the unknown directory. It would lose its
    leadership to no other broker, and would not get it back when the directory can be written.

    Args:
        image: The partition in the metadata.
        broker: This broker, which is a replica.
        directory: The id of the directory of its log, or None if it is not known.
        storage: The state of that directory.
        reports_all: A replica is reported although nothing is wrong with it.
    """
    known = dict(zip(image.replicas, image.directories, strict=False)).get(broker, ZERO_UUID)
    if storage is Storage.WRITABLE:
        is_needed = reports_all if known == ZERO_UUID else known != directory
        return directory if is_needed else None
    if storage is Storage.OFFLINE and directory is not None:
        return None if known == directory else directory
    has_followers = any(each != broker for each in image.isr)
    leads = image.leader == broker or storage is Storage.OFFLINE
    return LOST_DIRECTORY if known in (ZERO_UUID, directory) and has_followers and leads else None


class ReplicaDirectories:
    """Reports the replicas of one broker. Used on the event loop only.

    Args:
        broker_id: This broker.
        log_manager: Its logs.
        replica_manager: Its partitions.
        member: Its image, its registration and its channel for reports.
        executor: Threads that read the free space of a disk.
        timers: Timers of the checks of a full disk.
        failed: Called with the error when the last log directory has failed: the broker must stop.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        member: ClusterMember,
        executor: Executor,
        timers: Timers,
        failed: Callable[[Exception], None],
    ) -> None:
        self._broker_id = broker_id
        self._log_manager = log_manager
        self._replica_manager = replica_manager
        self._member = member
        self._executor = executor
        self._timers = timers
        self._failed = failed
        self._reports_all = len(log_manager.log_dirs) > 1
        self._full: dict[LogDir, None] = {}
        self._watch: asyncio.Task[None] | None = None
        self._end: asyncio.Task[None] | None = None

    def reporting(self) -> Generator[None, None, None]:
        """Report the replicas whose directories the metadata does not have, after a start."""
        for count, partition in enumerate(self._replica_manager.partitions(), 1):
            if not count % ELEMENTS_PER_SLICE:
                yield
            self._member.heartbeats.report_replicas(self._report(partition))

    def apply(
        self, delta: MetadataDelta, _old: MetadataImage, new: MetadataImage
    ) -> Generator[None, None, None]:
        """Report new replicas, and correct directories that the metadata has from old reports."""
        visited = 0
        for changes in delta.topics.changed.values():
            for number, image in changes.partitions.items():
                visited += 1
                if not visited % ELEMENTS_PER_SLICE:
                    yield
                if (image.directories or self._reports_all) and self._broker_id in image.replicas:
                    partition = self._replica_manager.find(changes.name, number)
                    if partition is not None and partition.topic_id in new.topics_by_id:
                        self._member.heartbeats.report_replicas(self._report(partition))

    def failing(self, log_dir: LogDir) -> Generator[None, None, None]:
        """Report a directory that has failed, after its partitions were stopped."""
        if all(each.offline for each in self._log_manager.log_dirs):
            if self._end is None:
                self._end = asyncio.get_running_loop().create_task(self._report_last())
            return
        directory = self._log_manager.directory_ids.get(log_dir.path)
        if directory is not None:
            self._member.lifecycle.directory_failed(directory)
        yield from self._reporting(log_dir)
        if directory is not None:
            self._member.heartbeats.directory_failed(directory)

    async def _report_last(self) -> None:
        """Report that no log directory works, and stop the broker.

        Nothing else depends on this broker, so it waits as long as the controller does not respond.
        The controller has fenced it by then, but a fenced broker keeps its proof of a clean stop.
        """
        self._member.lifecycle.last_directory_failed()
        logger.warning(
            "all log directories of broker %d have failed. It stops when the controller has "
            "recorded that",
            self._broker_id,
        )
        try:
            await self._member.heartbeats.report_last_failure(
                self._log_manager.directory_ids.values()
            )
        finally:
            self._failed(
                KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
            )

    def directory_full(self, log_dir: LogDir) -> None:
        """Hand over the leaderships of a directory without space, until it has space again."""
        self._full[log_dir] = None
        begin(self._reporting(log_dir), f"the reports of the replicas in {log_dir}")
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._watch_space())

    async def stop(self) -> None:
        """End the checks of full disks, and the last report."""
        for task in (self._watch, self._end):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))

    async def _watch_space(self) -> None:
        while self._full:
            await self._timers.sleep(SPACE_CHECK_MS / 1000)
            try:
                await self._check_space()
            except Exception:
                logger.exception(
                    "bug in the check of %d full disks. It is repeated. Report the traceback",
                    len(self._full),
                )
        self._watch = None

    async def _check_space(self) -> None:
        for log_dir in list(self._full):
            if log_dir.offline or await self._has_space(log_dir):
                del self._full[log_dir]
                log_dir.space_freed()
                self._member.heartbeats.withdraw_lost(self._replicas(log_dir))
            await in_slices(self._reporting(log_dir))

    async def _has_space(self, log_dir: LogDir) -> bool:
        loop = asyncio.get_running_loop()
        try:
            space = await loop.run_in_executor(self._executor, log_dir.files.space, log_dir.path)
        except OSError as error:
            logger.warning(
                "the free space of %s is not known: %s. It is read again", log_dir, error
            )
            return False
        return space.usable_bytes >= FREE_BYTES_MIN

    def _replicas(self, log_dir: LogDir) -> list[Replica]:
        return [
            (each.topic_id, each.topic_partition.partition)
            for each in self._replica_manager.partitions()
            if each.log.log_dir is log_dir
        ]

    def _reporting(self, log_dir: LogDir) -> Generator[None, None, None]:
        """Report the replicas in a log directory. Each time slice reports what it has found."""
        reports: dict[Replica, Uuid] = {}
        for count, partition in enumerate(self._replica_manager.partitions(), 1):
            if partition.log.log_dir is log_dir:
                reports.update(self._report(partition))
            if not count % ELEMENTS_PER_SLICE:
                self._member.heartbeats.report_replicas(reports)
                reports = {}
                yield
        self._member.heartbeats.report_replicas(reports)

    def _report(self, partition: Partition) -> Mapping[Replica, Uuid]:
        key = partition.topic_partition
        found = self._member.image.partition(*key)
        if found is None or self._broker_id not in found.replicas:
            return {}
        log_dir = partition.log.log_dir
        directory = self._log_manager.directory_ids.get(log_dir.path)
        storage = Storage.OFFLINE if log_dir.offline else Storage.WRITABLE
        if storage is Storage.WRITABLE and log_dir in self._full:
            storage = Storage.FULL
        report = replica_report(
            found, self._broker_id, directory, storage, reports_all=self._reports_all
        )
        return {} if report is None else {(partition.topic_id, key.partition): report}
