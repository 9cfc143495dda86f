"""Reports of the log directories of this broker's replicas, for the elections of the controller.

The controller does not know in which log directory a replica is, and needs it only when this broker
cannot write the replica. A replica in a directory that has failed is therefore reported with that
directory, and loses its leadership. A replica that was reported is reported again when it is in
another directory, or can be written again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import LOST_DIRECTORY, ZERO_UUID, BrokerId, Uuid
from odradek.slicing import ELEMENTS_PER_SLICE

if TYPE_CHECKING:
    from odradek.broker.cluster_member import ClusterMember
    from odradek.broker.heartbeats import Replica
    from odradek.log.directories.log_manager import LogManager
    from odradek.log.log_dir import LogDir
    from odradek.metadata.image import PartitionImage
    from odradek.replication.partition import Partition
    from odradek.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


def replica_report(
    image: PartitionImage, broker: BrokerId, directory: Uuid | None, is_offline: bool
) -> Uuid | None:
    """Return the directory to report for a replica, or None if no report is necessary. Pure.

    A replica without in-sync followers is not reported in an unknown directory. It would lose its
    leadership to no other broker, and would not get it back when the directory is online again.

    Args:
        image: The partition in the metadata.
        broker: This broker, which is a replica.
        directory: The id of the directory of its log, or None if it is not known.
        is_offline: Whether that directory has failed.
    """
    known = dict(zip(image.replicas, image.directories, strict=False)).get(broker, ZERO_UUID)
    if not is_offline:
        return None if known in (ZERO_UUID, directory) else directory
    if directory is not None:
        return None if known == directory else directory
    has_followers = any(each != broker for each in image.isr)
    return LOST_DIRECTORY if known == ZERO_UUID and has_followers else None


class ReplicaDirectories:
    """Reports the replicas of one broker. Used on the event loop only.

    Args:
        broker_id: This broker.
        log_manager: Its logs.
        replica_manager: Its partitions.
        member: Its image, its registration and its channel for reports.
        failed: Called with the error when the last log directory has failed: the broker must stop.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        member: ClusterMember,
        failed: Callable[[Exception], None],
    ) -> None:
        self._broker_id = broker_id
        self._log_manager = log_manager
        self._replica_manager = replica_manager
        self._member = member
        self._failed = failed

    def reporting(self) -> Generator[None, None, None]:
        """Report the replicas whose directories have changed while this broker was stopped."""
        for count, partition in enumerate(self._replica_manager.partitions(), 1):
            if not count % ELEMENTS_PER_SLICE:
                yield
            self._member.heartbeats.report_replicas(self._report(partition))

    def directory_failed(self, log_dir: LogDir) -> None:
        """Report a directory that has failed, after its partitions were stopped."""
        if all(each.offline for each in self._log_manager.log_dirs):
            self._failed(
                KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline")
            )
            return
        replicas: dict[Replica, Uuid] = {}
        for partition in self._replica_manager.partitions():
            if partition.log.log_dir is log_dir:
                replicas.update(self._report(partition))
        directory = self._log_manager.directory_ids.get(log_dir.path)
        if directory is not None:
            self._member.lifecycle.directory_failed(directory)
        self._member.heartbeats.directory_failed(directory, replicas)

    def _report(self, partition: Partition) -> Mapping[Replica, Uuid]:
        key = partition.topic_partition
        found = self._member.image.partition(*key)
        if found is None or self._broker_id not in found.replicas:
            return {}
        log_dir = partition.log.log_dir
        directory = self._log_manager.directory_ids.get(log_dir.path)
        report = replica_report(found, self._broker_id, directory, log_dir.offline)
        return {} if report is None else {(partition.topic_id, key.partition): report}
