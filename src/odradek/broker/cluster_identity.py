"""The mark of a cluster in the log directories, and the admission of a broker to a cluster.

The first start in a cluster writes the file ``odradek-cluster.properties`` to each log directory.
It is the mark of the cluster: the path of its root in ZooKeeper, and its id::

    chroot=/odradek
    cluster.id=5L6g3nShT-eMCtK--X86sw
    version=1

While the metadata of a single broker moves into an empty store, the mark in its first log directory
also has the line ``state=moving``. `store_move` lists the states that a crash may leave.

From then on the metadata of the directories is in that ZooKeeper. A broker with a mark refuses to
start as a single broker. It also refuses a ZooKeeper that is empty or belongs to another cluster.
Otherwise it would find topics without records, or records without topics.

`admission` makes this decision before anything in the log directories changes (rule Z14).
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
MOVING = "moving"
"""The state of a mark from the begin of a move until its end."""


class ClusterMark(NamedTuple):
    """The cluster that a log directory belongs to.

    Attributes:
        cluster_id: The id of the cluster.
        chroot: The path of the store's root in ZooKeeper. Empty without one.
        is_moving: Whether the move of the metadata has begun, and is not known to have ended.
    """

    cluster_id: str
    chroot: str
    is_moving: bool = False


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

    JOIN: the store has the metadata of the cluster. BEGIN: the store is empty, the log directories
    are new, and a new cluster begins. MOVE: the store is empty, and the metadata of the single
    broker moves into it.
    """

    JOIN = "join"
    BEGIN = "begin"
    MOVE = "move"


def admission(
    directories: DirectoryIdentity,
    store_cluster_id: str | None,
    chroot: str,
    moving_id: str | None = None,
) -> Admission:
    """Return how a broker joins the cluster of a store.

    Args:
        directories: The contents of its log directories.
        store_cluster_id: The id of the cluster in the store. None: the store is empty.
        chroot: The path of the store's root.
        moving_id: The id of the cluster whose unfinished move the empty store has.

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
        continues = mark is not None and mark.is_moving and moving_id == known
        if mark is not None and not (continues and directories.has_metadata):
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
        if known is not None:
            raise _refusal(_elsewhere(known, chroot))
        return Admission.BEGIN
    if known is not None and known != store_cluster_id:
        raise _refusal(
            f"the metadata store belongs to cluster {store_cluster_id}, the log directories to "
            f"{known}. Start the broker with log directories of one cluster"
        )
    return Admission.JOIN


def _elsewhere(cluster_id: str, chroot: str) -> str:
    """Return why directories of a cluster begin no cluster in an empty store.

    Every Kafka broker with ZooKeeper has such directories. A new cluster would have its id, and
    would not know its logs. A first start of Odradek marks the directories before they get an id.
    """
    return (
        f"the log directories belong to cluster {cluster_id}, and ZooKeeper has no cluster at path "
        f"{chroot or '/'}. Set zookeeper.connect to the servers and the path of that cluster (the "
        "server.properties of Kafka has them), or restore its ZooKeeper. A new cluster needs "
        "empty log directories"
    )


def single_broker_refusal(mark: ClusterMark) -> KafkaError:
    """Return the error of a single broker whose log directories have a mark."""
    path = mark.chroot or "/"
    if mark.is_moving:
        return _refusal(
            f"the metadata of cluster {mark.cluster_id} has begun to move into ZooKeeper at path "
            f"{path}. Start the broker with zookeeper.connect, which completes the move. If that "
            f"path has no node cluster/id, or one of another cluster, you may remove {MARK_FILE} "
            "instead"
        )
    return _refusal(
        f"the log directories belong to cluster {mark.cluster_id}, whose metadata is in ZooKeeper "
        f"at path {path}. Start the broker with zookeeper.connect"
    )


def read_mark(files: Files, paths: Sequence[str]) -> ClusterMark | None:
    """Return the mark of the log directories. One without the state "moving" ends a move.

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
        state = properties.get("state")
        mark = ClusterMark(properties["cluster.id"], properties.get("chroot", ""), state == MOVING)
        if found is not None and mark[:2] != found[:2]:
            raise _refusal(
                f"the log directories belong to different clusters: {found.cluster_id} at "
                f"{found.chroot or '/'}, and {path} to {mark.cluster_id} at {mark.chroot or '/'}. "
                "Name only log directories of one cluster in log.dirs"
            )
        if found is None or found.is_moving:
            found = mark
    return found


def write_mark(files: Files, paths: Sequence[str], mark: ClusterMark) -> None:
    """Write the mark to the log directories that do not have it. At least one must take it.

    It replaces the mark of an unfinished move.

    Raises:
        OSError: None of the directories has the mark, or can take it.
    """
    content = {"version": VERSION, "cluster.id": mark.cluster_id, "chroot": mark.chroot}
    if mark.is_moving:
        content["state"] = MOVING
    failure: OSError | None = None
    marked = 0
    for path in paths:
        file = f"{path}/{MARK_FILE}"
        try:
            if read_properties(files, file) != content:
                write_properties(files, file, content)
            marked += 1
        except OSError as error:
            logger.warning("%s cannot be written: %s. The next start tries again", file, error)
            failure = error
    if failure is not None and not marked:
        raise failure


def _refusal(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
