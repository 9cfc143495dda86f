"""The metadata store as an image, and the nodes that every store has."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid, uuid_to_string
from odradek.metadata import znodes
from odradek.metadata.features import default_levels
from odradek.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionImage,
    TopicDeletion,
    TopicImage,
)
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.quota_nodes import CLIENTS, USERS, load_quotas
from odradek.metadata.store.interface import (
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExistsError,
    NodeReader,
    Operation,
    UnknownOutcomeError,
)
from odradek.metadata.topics import new_partition
from odradek.slicing import ELEMENTS_PER_SLICE, in_slices

_Header = tuple[Uuid, Sequence[znodes.PartitionReplicas]]
"""The id of a topic, and the replicas of its partitions."""

_PARENTS = (*znodes.PERSISTENT_PATHS, USERS, CLIENTS)
_WITH_CONTENTS = (
    znodes.METADATA,  # first: Apache Kafka has the others
    znodes.CONTROLLER_EPOCH,
    znodes.PRODUCER_ID_BLOCK,
    znodes.FEATURES,
)
"""Nodes that a cluster has from its first write on. New ones would repeat epochs and ids."""
PREPARATIONS_MAX = 10
"""Attempts to create the nodes that every store has. Brokers that start together compete."""


class MetadataChanged(Exception):
    """A node has vanished while the store was read, because another controller writes."""


class LoadedMetadata(NamedTuple):
    """The contents of the store.

    Attributes:
        image: All of it, with the position of the last change.
        position_version: The version of the node of that position.
        unfinished: The topics with partitions that have no state yet, with all of their partitions.
            The image has the others.
    """

    image: MetadataImage
    position_version: int
    unfinished: Sequence[TopicImage] = ()


def fixed_nodes(cluster_id: str) -> dict[str, bytes]:
    """Return the nodes that every store has with their first contents, parents first."""
    return {
        **dict.fromkeys(_PARENTS, b""),
        znodes.CLUSTER_ID: znodes.encode({"version": "1", "id": cluster_id}),
        znodes.FEATURES: znodes.encode_features(default_levels()),
        znodes.CONTROLLER_EPOCH: b"0",
        znodes.PRODUCER_ID_BLOCK: b"",
        znodes.METADATA: b"",
    }


async def check_prepared(store: MetadataStore, cluster_id: str) -> None:
    """Check that a store with a cluster id has the nodes of Odradek that have contents.

    Raises:
        KafkaError: INCONSISTENT_CLUSTER_ID. It has not, so nothing may be written.
    """
    nodes = await store.get_many(_WITH_CONTENTS)
    missing = [path for path, node in zip(_WITH_CONTENTS, nodes, strict=True) if node is None]
    _check_contents(cluster_id, missing)


def _check_contents(cluster_id: str, missing: Sequence[str]) -> None:
    lost = [path for path in _WITH_CONTENTS if path in missing]
    if not lost:
        return
    reason = f"Restore {lost[0]} with its contents"
    if lost[0] == znodes.METADATA:
        reason = (
            "It was removed, or the cluster is one of Apache Kafka without /brokers/seqid or "
            "/config/changes. Restore the nodes of ZooKeeper from a backup"
        )
    raise KafkaError(
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        f"cluster {cluster_id} in the metadata store has no node {lost[0]}. {reason}",
    )


async def prepare(
    store: MetadataStore,
    cluster_id: str | None,
    new_uuid: Callable[[], Uuid],
    imported: Callable[[], Sequence[Operation]] | None = None,
    *,
    completes: bool = True,
) -> str:
    """Create the missing nodes that every store has, in one write. Return the cluster id.

    Args:
        store: The store.
        cluster_id: The cluster id of the log directories, if they are older than the store.
        new_uuid: Returns a random cluster id.
        imported: Returns the first contents of a new store. They are written with the cluster id,
            so a store that has a cluster id is not new.
        completes: Whether a store that has a cluster id may lack nodes with contents. The single
            brokers of release 0.1.0 did not create all of them. If False, the write also fails
            while the metadata of a single broker moves into the store (`store_move`).

    Raises:
        KafkaError: INCONSISTENT_CLUSTER_ID. The store belongs to another cluster, or lacks a node,
            or the metadata of another broker moves into it.
    """
    for _ in range(PREPARATIONS_MAX):
        fixed = fixed_nodes(cluster_id or uuid_to_string(new_uuid()))
        nodes = await store.get_many(list(fixed))
        missing = [path for path, node in zip(fixed, nodes, strict=True) if node is None]
        if not completes and znodes.CLUSTER_ID not in missing:
            _check_contents(await _cluster_id(store, cluster_id), missing)
        contents = imported() if imported is not None and znodes.CLUSTER_ID in missing else ()
        written = {each.path for each in contents}
        operations: list[Operation] = [
            Create(path, fixed[path]) for path in missing if path not in written
        ]
        if not completes and znodes.CLUSTER_ID in missing:
            operations += [Create(znodes.MOVE), Delete(znodes.MOVE)]
        try:
            if operations:
                await store.multi([*operations, *contents])
        except (NodeExistsError, UnknownOutcomeError) as error:  # another broker was first, perhaps
            if isinstance(error, NodeExistsError) and error.path == znodes.MOVE:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_CLUSTER_ID,
                    "the metadata of another broker moves into this store. Start again. If that "
                    "broker no longer exists, remove /odradek with its children first",
                ) from error
            await store.connected()
            await store.sync()
            continue
        return await _cluster_id(store, cluster_id)
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the metadata store cannot be prepared")


async def _cluster_id(store: MetadataStore, expected: str | None) -> str:
    node = await store.get(znodes.CLUSTER_ID)
    kept = znodes.valid(znodes.CLUSTER_ID, znodes.decode_cluster_id, node.data)
    if expected is not None and kept != expected:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the metadata store belongs to cluster {kept}, the log directories to {expected}. "
            "Start the broker with log directories of one cluster.",
        )
    return kept


async def load(store: NodeReader, cluster_id: str, node_id: BrokerId) -> LoadedMetadata:
    """Return the contents of a store that is prepared. `node_id` is this broker.

    Raises:
        InvalidNode: The contents of a node are not valid.
        MetadataChanged: Another controller writes at the same time.
    """
    position = await store.get(znodes.METADATA)
    controller_epoch, offset = znodes.valid(znodes.METADATA, znodes.decode_position, position.data)
    topics, unfinished = await _load_topics(store)
    features = (await store.get(znodes.FEATURES)).data
    producer_ids = (await store.get(znodes.PRODUCER_ID_BLOCK)).data
    image = MetadataImage(
        cluster_id=cluster_id,
        controller_epoch=controller_epoch,
        offset=offset,
        brokers=PersistentMap(await _load_registrations(store)),
        topics_by_name=PersistentMap({topic.name: topic for topic in topics}),
        topics_by_id=PersistentMap({topic.topic_id: topic for topic in topics}),
        topic_configs=PersistentMap(await _load_topic_configs(store)),
        broker_configs=PersistentMap(await _load_broker_configs(store)),
        features=PersistentMap(znodes.valid(znodes.FEATURES, znodes.decode_features, features)),
        group_configs=PersistentMap(await _load_configs(store, znodes.GROUP_CONFIGS)),
        client_metrics=PersistentMap(await _load_configs(store, znodes.CLIENT_METRICS)),
        client_quotas=PersistentMap(await load_quotas(store)),
        deletions=PersistentMap(await _load_deletions(store, node_id)),
        next_producer_id=znodes.valid(
            znodes.PRODUCER_ID_BLOCK, znodes.decode_next_producer_id, producer_ids
        ),
    )
    return LoadedMetadata(image, position.version, unfinished)


def _found(node: Node | None) -> Node:
    """Return a node that existed a moment ago."""
    if node is None:
        raise MetadataChanged("the metadata store lost a node")
    return node


async def _load_topics(store: NodeReader) -> tuple[list[TopicImage], list[TopicImage]]:
    """Return the topics, and the unfinished ones among them.

    A topic whose deletion is marked does not exist, although its nodes do.
    """
    marks = await store.children(znodes.DELETE_TOPICS)
    found = await store.get_many([znodes.delete_mark_path(TopicName(each)) for each in marks])
    marked = {
        name
        for name, node in zip(marks, found, strict=True)
        if znodes.is_delete_mark(_found(node).data)
    }
    names = [TopicName(name) for name in await store.children(znodes.TOPICS) if name not in marked]
    topic_paths = [znodes.topic_path(name) for name in names]
    nodes = await store.get_many(topic_paths)
    headers, paths = await in_slices(_decoding_headers(names, topic_paths, nodes))
    states = iter(await store.get_many(paths))
    return await in_slices(_decoding(names, headers, states))


def _decoding_headers(
    names: Sequence[TopicName], topic_paths: Sequence[str], nodes: Sequence[Node | None]
) -> Generator[None, None, tuple[list[_Header], list[str]]]:
    """Decode the nodes of topics. Return them with the paths of the states of all partitions."""
    headers: list[_Header] = []
    paths: list[str] = []
    left = ELEMENTS_PER_SLICE
    for name, path, node in zip(names, topic_paths, nodes, strict=True):
        decoding = znodes.decoding_topic_header(_found(node).data)
        header = yield from znodes.valid_in_slices(path, decoding)
        headers.append(header)
        left -= 1
        for number in range(len(header[1])):
            paths.append(znodes.state_path(name, number))
            left -= 1
            if left <= 0:
                left = ELEMENTS_PER_SLICE
                yield
    return headers, paths


def _decoding(
    names: Sequence[TopicName],
    headers: Sequence[_Header],
    states: Iterator[Node | None],
) -> Generator[None, None, tuple[list[TopicImage], list[TopicImage]]]:
    """Decode the states of all partitions, which are in the order of the topics.

    A topic ends before its first partition without a state, which was never led. It is unfinished.
    """
    topics = []
    unfinished = []
    left = ELEMENTS_PER_SLICE
    for name, (topic_id, replicas) in zip(names, headers, strict=True):
        partitions: list[PartitionImage] = []
        for number, ids in enumerate(replicas):
            state = next(states)
            if state is not None and len(partitions) == number:
                path = znodes.state_path(name, number)
                decode = znodes.decode_partition
                partitions.append(znodes.valid(path, decode, number, ids, state))
            left -= 1
            if not left:
                left = ELEMENTS_PER_SLICE
                yield
        topics.append(TopicImage(name, topic_id, partitions))
        if len(partitions) < len(replicas):
            whole = yield from making_whole_topic(name, topic_id, replicas)
            unfinished.append(whole)
    return topics, unfinished


def making_whole_topic(
    name: TopicName, topic_id: Uuid, replicas: Sequence[znodes.PartitionReplicas]
) -> Generator[None, None, TopicImage]:
    """Return a topic with the replicas of its node. The rest of its state is not in the node."""
    partitions: list[PartitionImage] = []
    for number, each in enumerate(replicas):
        partitions.append(new_partition(number, each.replicas))
        if not len(partitions) % ELEMENTS_PER_SLICE:
            yield
    return TopicImage(name, topic_id, partitions)


async def _load_registrations(store: NodeReader) -> dict[BrokerId, BrokerRegistration]:
    """Return the last registration of each broker. The broker may be down."""
    names = await store.children(znodes.REGISTRATIONS)
    nodes = await store.get_many([f"{znodes.REGISTRATIONS}/{name}" for name in names])
    return dict(
        znodes.valid(f"{znodes.REGISTRATIONS}/{name}", _registration, name, _found(node).data)
        for name, node in zip(names, nodes, strict=True)
    )


def _registration(name: str, data: bytes) -> tuple[BrokerId, BrokerRegistration]:
    broker = BrokerId(int(name))
    return broker, znodes.decode_registration(broker, data)


async def _load_configs(store: NodeReader, parent: str) -> dict[str, dict[str, str]]:
    """Return the overrides of every resource below a path, by name."""
    names = await store.children(parent)
    nodes = await store.get_many([f"{parent}/{name}" for name in names])
    found = {
        znodes.unsanitized(name): znodes.valid(
            f"{parent}/{name}", znodes.decode_configs, _found(node).data
        )
        for name, node in zip(names, nodes, strict=True)
    }
    return {name: configs for name, configs in found.items() if configs}


async def _load_topic_configs(store: NodeReader) -> dict[TopicName, Mapping[str, str]]:
    configs = await _load_configs(store, znodes.TOPIC_CONFIGS)
    return {TopicName(name): overrides for name, overrides in configs.items()}


async def _load_broker_configs(store: NodeReader) -> dict[str, dict[str, str]]:
    configs = await _load_configs(store, znodes.BROKER_CONFIGS)
    return {
        "" if name == znodes.DEFAULT_ENTITY else name: overrides
        for name, overrides in configs.items()
    }


async def _load_deletions(store: NodeReader, node_id: BrokerId) -> dict[Uuid, TopicDeletion]:
    ids = await store.children(znodes.DELETED_TOPICS)
    nodes = await store.get_many([f"{znodes.DELETED_TOPICS}/{each}" for each in ids])
    return dict(
        znodes.valid(
            f"{znodes.DELETED_TOPICS}/{each}",
            znodes.decode_deletion,
            each,
            _found(node).data,
            node_id,
        )
        for each, node in zip(ids, nodes, strict=True)
    )
