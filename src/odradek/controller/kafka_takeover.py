"""The take-over of the ZooKeeper of a stopped Kafka cluster, in place.

Kafka's nodes stay as they are. One write adds the nodes of Odradek, and gives ``/feature`` the
level of ``metadata.version``. It fails if a controller exists, or if another broker was first. A
crash therefore leaves either a store of Kafka or one of Odradek. ``/odradek/kafka`` marks a store
that was taken over. There, the brokers of Kafka are checked when they join (`check_join`).

The log directories are marked afterwards, by the start of each broker. A broker that crashed before
that joins like any other.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from odradek.controller.loading import MetadataChanged, fixed_nodes, load
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId
from odradek.metadata import znodes
from odradek.metadata.image import MetadataImage
from odradek.metadata.kafka_import.zookeeper_store import (
    CONFIG_CHANGES,
    REASSIGNMENTS,
    ROOT,
    SEQUENCE_IDS,
    DirectoryUse,
    KafkaStore,
    Logs,
    checking_directories,
    checking_known_logs,
    config_refusal,
    file_refusal,
    initial_levels,
    is_kafkas,
    store_refusal,
    store_warnings,
    use_refusal,
)
from odradek.metadata.quota_nodes import USERS
from odradek.metadata.store.interface import (
    Check,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExistsError,
    NodeReader,
    NoNodeError,
    Operation,
    Set,
    Watcher,
)
from odradek.slicing import in_slices

logger = logging.getLogger(__name__)

LOADS_MAX = 5
"""Attempts of a check to read the metadata while the controller of other brokers changes it."""
_SCRAM = "SCRAM-"

ReadLogs = Callable[[], Awaitable[Logs]]
"""Returns the logs in the log directories."""


class JoiningBroker(NamedTuple):
    """A broker that takes a store over, or joins one that was taken over.

    Attributes:
        node_id: Its id.
        static_configs: Its configs.
        use: How its log directories were used.
        read_logs: Reads its log directories.
        file: The contents of its file. None without a file.
        permits_missing_file: Whether an administrator permits a take-over without Kafka's file.
    """

    node_id: BrokerId
    static_configs: Mapping[str, str]
    use: DirectoryUse
    read_logs: ReadLogs
    file: Mapping[str, str] | None = None
    permits_missing_file: bool = False

    def config_refusal(self) -> str | None:
        """Return why its configs exclude the take-over. None: they do not."""
        return config_refusal(self.static_configs) or config_refusal(self.file or {})

    def file_refusal(self, scram_users: Collection[str] = ()) -> str | None:
        """Return why it needs Kafka's file. None: it does not."""
        return file_refusal(self.file, scram_users, permitted=self.permits_missing_file)


class _WithFixedNodes(NodeReader):
    """A store of Kafka with the missing nodes of Odradek, for reading."""

    def __init__(self, store: MetadataStore, missing: Mapping[str, bytes], stat_of: Node) -> None:
        self._store = store
        self._missing = {path: stat_of._replace(data=data) for path, data in missing.items()}

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        found = self._missing.get(path)
        return await self._store.get(path, watch) if found is None else found

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        found = await self._store.get_many(paths)
        pairs = zip(paths, found, strict=True)
        return [self._missing.get(path) if node is None else node for path, node in pairs]

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        return [] if path in self._missing else await self._store.children(path, watch)


async def is_store_of_kafka(store: MetadataStore) -> bool:
    """Return whether a store with a cluster id is one of Kafka that was not taken over."""
    parents = await store.get_many([SEQUENCE_IDS, CONFIG_CHANGES])
    has_parents = None not in parents
    return is_kafkas(await store.children(ROOT), has_kafkas_parents=has_parents)


async def read_kafka_store(store: MetadataStore) -> KafkaStore:
    """Return the parts of a store of Kafka that decide about its take-over.

    Raises:
        InvalidNode: The contents of a node are not valid.
    """
    existing = (znodes.CONTROLLER, znodes.CONTROLLER_EPOCH, znodes.PRODUCER_ID_BLOCK, REASSIGNMENTS)
    found = [each is not None for each in await store.get_many(existing)]
    has_controller, has_epoch, has_producer_ids, has_reassignments = found
    users = await _configs(store, USERS)
    brokers = await _configs(store, znodes.BROKER_CONFIGS)
    return KafkaStore(
        root_names=await store.children(ROOT),
        brokers=await _children(store, znodes.BROKER_IDS),
        has_controller=has_controller,
        has_epoch=has_epoch,
        has_producer_ids=has_producer_ids,
        deletions=await _children(store, znodes.DELETE_TOPICS),
        has_pending_reassignments=has_reassignments,
        broker_configs=brokers,
        scram_users=[
            name for name, configs in users.items() if any(k.startswith(_SCRAM) for k in configs)
        ],
    )


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNodeError:
        return []


async def _configs(store: MetadataStore, parent: str) -> dict[str, dict[str, str]]:
    paths = [f"{parent}/{name}" for name in await _children(store, parent)]
    nodes = zip(paths, await store.get_many(paths), strict=True)
    return {
        path.rpartition("/")[2]: znodes.valid(path, znodes.decode_configs, node.data)
        for path, node in nodes
        if node is not None and node.data
    }


async def take_over(store: MetadataStore, cluster_id: str, broker: JoiningBroker) -> None:
    """Check a store of Kafka and the log directories of this broker, and take the store over.

    Args:
        store: The store, which `is_store_of_kafka`.
        cluster_id: The id in the store.
        broker: This broker.

    Raises:
        KafkaError: INCONSISTENT_CLUSTER_ID. The cluster is not taken over. Nothing was written.
        InvalidNode: The contents of a node are not valid. Nothing was written.
        NodeExistsError: A controller exists, or another broker has taken the store over.
        UnknownOutcomeError: The response to the write was lost.
    """
    found = await read_kafka_store(store)
    refusal = (
        broker.config_refusal()
        or store_refusal(found)
        or use_refusal(broker.use)
        or broker.file_refusal(found.scram_users)
    )
    if refusal is not None:
        await store.sync()
        if not await is_store_of_kafka(store):
            raise NodeExistsError(znodes.TAKEN_OVER)  # the brokers that run are those of Odradek
        raise _refused(cluster_id, refusal)
    fixed = fixed_nodes(cluster_id)
    nodes = dict(zip(fixed, await store.get_many(list(fixed)), strict=True))
    missing = {path: data for path, data in fixed.items() if nodes[path] is None}
    cluster = nodes[znodes.CLUSTER_ID]
    assert cluster is not None, "this store has a cluster id"
    image = await _load(_WithFixedNodes(store, missing, cluster), cluster_id, broker.node_id)
    await _check_directories(image, broker)
    operations: list[Operation] = [
        Create(znodes.CONTROLLER),  # fails if a broker of Kafka is the controller
        Delete(znodes.CONTROLLER),
        Check(znodes.CLUSTER_ID, cluster.version),
    ]
    levels = znodes.encode_features(initial_levels(image.features))
    features = nodes[znodes.FEATURES]
    if features is not None:
        operations.append(Set(znodes.FEATURES, levels, features.version))
    operations += [
        Create(path, levels if path == znodes.FEATURES else data) for path, data in missing.items()
    ]
    operations.append(Create(znodes.TAKEN_OVER, znodes.encode({"version": 1})))
    await store.multi(operations)
    logger.info(
        "took over cluster %s of Apache Kafka with %d topics: its nodes in ZooKeeper stay as they "
        "are. Do not start Kafka on them again",
        cluster_id,
        len(image.topics_by_name),
    )
    for line in store_warnings(found):
        logger.warning("%s. See docs/from-kafka.md", line)


async def check_join(store: MetadataStore, cluster_id: str, broker: JoiningBroker) -> None:
    """Check the first join of a broker whose log directories may be those of Kafka.

    A broker that has joined before needs no check. In a store that was never one of Kafka, the logs
    must not all be unknown.

    Raises:
        KafkaError: INCONSISTENT_CLUSTER_ID. The log directories do not fit the store.
    """
    registration = znodes.registration_path(broker.node_id)
    marked, registered = await store.get_many([znodes.TAKEN_OVER, registration])
    if registered is not None or broker.use.has_mark:
        return
    if marked is None:
        if not broker.use.is_new:
            await _check_known_logs(await _load(store, cluster_id, broker.node_id), broker)
        return
    refusal = broker.config_refusal()
    if refusal is None and not broker.use.is_new:
        refusal = broker.file_refusal()
    if refusal is not None:
        raise _refused(cluster_id, refusal)
    await _check_directories(await _load(store, cluster_id, broker.node_id), broker)


async def _load(reader: NodeReader, cluster_id: str, node_id: BrokerId) -> MetadataImage:
    """Return the metadata in a store of Kafka. All of it is valid then.

    Raises:
        KafkaError: A topic has no id, or a controller changes the metadata all the time.
    """
    try:
        for _ in range(LOADS_MAX):
            with contextlib.suppress(MetadataChanged):
                return (await load(reader, cluster_id, node_id)).image
        reason = "the metadata changes while it is read. Start again"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, reason)
    except znodes.InvalidNode as error:
        if error.reason.args != ("topic_id",):
            raise
        topic = error.path.rpartition("/")[2]
        reason = (
            f"has a topic without an id ({topic}), as before Kafka 2.8. Start Kafka 3.9 once with "
            "an inter.broker.protocol.version of 2.8 or later, which adds it"
        )
        raise _refused(cluster_id, reason) from error


async def _check_directories(image: MetadataImage, broker: JoiningBroker) -> None:
    logs = await broker.read_logs()
    refusal = await in_slices(checking_directories(image, broker.node_id, logs))
    if refusal is not None:
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, refusal)


async def _check_known_logs(image: MetadataImage, broker: JoiningBroker) -> None:
    logs = await broker.read_logs()
    refusal = await in_slices(checking_known_logs(image, broker.node_id, logs))
    if refusal is not None:
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, refusal)


def _refused(cluster_id: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        f"cluster {cluster_id} of Apache Kafka is not taken over: it {reason}",
    )
