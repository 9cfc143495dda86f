"""The cluster that log directories belong to, and whether a broker may join a metadata store.

The first start in a cluster writes the mark ``odradek-cluster.properties`` to each log directory,
with the id of the cluster and the path of its root in ZooKeeper::

    chroot=/odradek
    cluster.id=5L6g3nShT-eMCtK--X86sw
    version=1

From then on the metadata of the directories is in that ZooKeeper. A broker with a mark does not
start with a ZooKeeper that is empty or belongs to another cluster, nor as a single broker. It would
find topics without their records, or records without their topics.

`admission` decides, before anything in the log directories has changed (rule Z14).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from odradek.environment.files import Files
from odradek.errors import ErrorCode, KafkaError
from odradek.log.state.checkpoints import MARK_FILE, read_properties, write_properties

logger = logging.getLogger(__name__)

VERSION = "1"


class ClusterMark(NamedTuple):
    """The cluster that a log directory belongs to.

    Attributes:
        cluster_id: The id of the cluster.
        chroot: The path of the store's root in ZooKeeper. Empty without one.
    """

    cluster_id: str
    chroot: str


class DirectoryIdentity(NamedTuple):
    """The contents of the log directories that decide how a broker joins a cluster.

    Attributes:
        cluster_id: The id in ``meta.properties``. None: the directories are new.
        mark: The mark. None: they have not been used in a cluster.
        has_metadata: Whether they have the metadata of a single broker.
        clean_shutdown_epoch: The broker epoch in the marks of a clean stop. -1: there was none.
        has_kafka_metadata: Whether they have the metadata of a Kafka broker without ZooKeeper.
    """

    cluster_id: str | None = None
    mark: ClusterMark | None = None
    has_metadata: bool = False
    clean_shutdown_epoch: int = -1
    has_kafka_metadata: bool = False


class Admission(Enum):
    """How a broker joins.

    JOIN: the store has the metadata of the cluster. BEGIN: the store is empty, and a new cluster
    begins. MOVE: the store is empty, and the metadata of the single broker moves into it.
    """

    JOIN = "join"
    BEGIN = "begin"
    MOVE = "move"


def admission(
    directories: DirectoryIdentity, store_cluster_id: str | None, chroot: str
) -> Admission:
    """Return how a broker joins the cluster of a store.

    Args:
        directories: The contents of its log directories.
        store_cluster_id: The id of the cluster in the store. None: the store is empty.
        chroot: The path of the store's root.

    Raises:
        KafkaError: INCONSISTENT_CLUSTER_ID. It may not join.
    """
    mark = directories.mark
    if mark is not None and mark.chroot != chroot:
        raise _refusal(
            f"the log directories belong to the cluster at ZooKeeper path {mark.chroot or '/'}, "
            f"not at {chroot or '/'}. Set zookeeper.connect to that path"
        )
    known = directories.cluster_id if mark is None else mark.cluster_id
    if store_cluster_id is None:
        if mark is not None:
            raise _refusal(
                f"the metadata store is empty, and the log directories belong to cluster {known}. "
                "Connect to the ZooKeeper of that cluster, or restore it"
            )
        if directories.has_metadata:
            return Admission.MOVE
        if directories.has_kafka_metadata:
            raise _refusal(
                "the log directories belong to a Kafka broker, whose metadata a cluster does not "
                "take over. Start the broker once without zookeeper.connect, and then with it"
            )
        return Admission.BEGIN
    if known is not None and known != store_cluster_id:
        raise _refusal(
            f"the metadata store belongs to cluster {store_cluster_id}, the log directories to "
            f"{known}. Start the broker with log directories of one cluster"
        )
    return Admission.JOIN


def single_broker_refusal(mark: ClusterMark) -> KafkaError:
    """Return the error of a single broker whose log directories have a mark."""
    return _refusal(
        f"the log directories belong to cluster {mark.cluster_id}, whose metadata is in ZooKeeper "
        f"at path {mark.chroot or '/'}. Start the broker with zookeeper.connect"
    )


def read_mark(files: Files, paths: Sequence[str]) -> ClusterMark | None:
    """Return the mark of the log directories.

    Raises:
        KafkaError: INCONSISTENT_CLUSTER_ID. Two of them have different marks, or one is damaged.
        OSError: A directory cannot be read.
    """
    found: ClusterMark | None = None
    for path in paths:
        properties = read_properties(files, f"{path}/{MARK_FILE}")
        if properties is None:
            continue
        if properties.get("version") != VERSION or not properties.get("cluster.id"):
            raise _refusal(
                f"{path}/{MARK_FILE} is damaged or of a later release. Restore the file, or "
                "use that release"
            )
        mark = ClusterMark(properties["cluster.id"], properties.get("chroot", ""))
        if found is not None and mark != found:
            raise _refusal(
                f"the log directories belong to different clusters: {found.cluster_id} at "
                f"{found.chroot or '/'}, and {path} to {mark.cluster_id} at {mark.chroot or '/'}. "
                "Name only log directories of one cluster in log.dirs"
            )
        found = mark
    return found


def write_mark(files: Files, paths: Sequence[str], mark: ClusterMark) -> None:
    """Write the mark to the log directories that do not have it. At least one must take it.

    Raises:
        OSError: None of the directories has the mark, or can take it.
    """
    failure: OSError | None = None
    marked = 0
    for path in paths:
        file = f"{path}/{MARK_FILE}"
        try:
            if read_properties(files, file) is None:
                content = {
                    "version": VERSION,
                    "cluster.id": mark.cluster_id,
                    "chroot": mark.chroot,
                }
                write_properties(files, file, content)
            marked += 1
        except OSError as error:
            logger.warning("%s cannot be written: %s. The next start tries again", file, error)
            failure = error
    if failure is not None and not marked:
        raise failure


def _refusal(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
