"""The writes to the metadata store that follow from a change of the image. Pure.

A plan says what changes, as records. This module is the only place that knows which nodes of the
store have the changed parts. The number of operations depends on the change, not on the image. The
version that a write of a partition's state expects is the partition epoch before the change.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.ids import Uuid
from odradek.metadata import record_classes, znodes
from odradek.metadata.delta import MetadataDelta, TopicDelta
from odradek.metadata.image import MetadataImage, Overrides, TopicDeletion, TopicImage
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.quota_nodes import quota_operations
from odradek.metadata.quotas import USER, Entity
from odradek.metadata.resources import CONFIG_PATHS, ResourceType
from odradek.metadata.store.interface import Create, Delete, Operation, Set
from odradek.slicing import ELEMENTS_PER_SLICE

_NOTHING: Mapping[Uuid, Any] = {}


@dataclass(slots=True)
class UnfinishedTopic:
    """A topic whose partitions are created in several writes, in the order of their numbers.

    Attributes:
        whole: The topic with all of its partitions.
        is_written: Whether the node of the topic has all partitions already.
    """

    whole: TopicImage
    is_written: bool = False


def store_operations(
    delta: MetadataDelta,
    new: MetadataImage,
    controller_epoch: int,
    unfinished: Mapping[Uuid, UnfinishedTopic] = _NOTHING,
    marked: Collection[Uuid] = (),
) -> Generator[None, None, list[Operation]]:
    """Return the operations that make the nodes of `new` out of those of the old image.

    The generator ends time slices.

    Args:
        delta: The changes.
        new: The image after the changes.
        controller_epoch: The epoch of the controller.
        unfinished: Topics whose partitions are created in several writes.
        marked: Removed topics whose nodes are deleted by further writes. A mark says so.
    """
    old = delta.image
    operations: list[Operation] = []
    left = ELEMENTS_PER_SLICE
    for removed in delta.topics.removed.values():
        if removed.topic_id in marked:
            mark = znodes.encode_delete_mark(removed.topic_id)
            operations.append(Create(znodes.delete_mark_path(removed.name), mark))
            continue
        for number in range(removed.partition_count):
            operations += znodes.delete_partition_operations(removed.name, number)
            left -= 1
            if left <= 0:
                left = ELEMENTS_PER_SLICE
                yield
        operations += znodes.delete_parents_operations(removed.name)
        left -= 1
    for topic_id, changes in delta.topics.changed.items():
        topic = new.topics_by_id[topic_id]
        topic_operations = _topic_operations(
            changes, topic, controller_epoch, unfinished.get(topic_id) or UnfinishedTopic(topic)
        )
        for some in topic_operations:
            operations += some or ()
            left -= 1
            if left <= 0 or some is None:
                left = ELEMENTS_PER_SLICE
                yield
    for topic_id, deletion in delta.deletions.changed.items():
        operations += _deletion_operations(topic_id, old.deletions.get(topic_id), deletion)
    operations += _all_config_operations(delta)
    operations += _quota_operations(delta, new)
    if delta.features.changed:
        operations.append(Set(znodes.FEATURES, znodes.encode_features(new.features)))
    operations += _producer_id_operations(delta)
    operations += _registration_operations(delta)
    return operations


def _topic_operations(
    changes: TopicDelta, topic: TopicImage, controller_epoch: int, unfinished: UnfinishedTopic
) -> Generator[Sequence[Operation] | None, None, None]:
    """Yield the operations of the topic's node, and those of each partition.

    None ends a time slice of the encoding of the topic's node.
    """
    before = changes.before
    path = znodes.topic_path(topic.name)
    if before is None:
        data = yield from znodes.encoding_topic(unfinished.whole)
        yield [Create(path, data), Create(f"{path}/partitions")]
        for partition in topic.partitions:
            yield znodes.partition_operations(topic.name, partition, controller_epoch)
        return
    added = []
    replicas_changed = False
    for number, partition in sorted(changes.partitions.items()):
        if number >= before.partition_count:
            added.append(partition)
            continue
        earlier = before.partitions[number]
        replicas_changed |= znodes.replicas_of(earlier) != znodes.replicas_of(partition)
        state = znodes.encode_state(partition, controller_epoch)
        yield [Set(znodes.state_path(topic.name, number), state, earlier.partition_epoch)]
    if (added or replicas_changed) and not unfinished.is_written:
        data = yield from znodes.encoding_topic(unfinished.whole)
        yield [Set(path, data)]
    for partition in added:
        yield znodes.partition_operations(topic.name, partition, controller_epoch)


def _deletion_operations(
    topic_id: Uuid, before: TopicDeletion | None, after: TopicDeletion | None
) -> list[Operation]:
    path = znodes.deleted_topic_path(topic_id)
    if after is None:
        return [Delete(path)] if before is not None else []
    data = znodes.encode_deletion(after)
    return [Create(path, data) if before is None else Set(path, data)]


def _all_config_operations(delta: MetadataDelta) -> list[Operation]:
    operations: list[Operation] = []
    for kind in CONFIG_PATHS:
        configs = delta.configs(kind)
        assert configs is not None
        for name, overrides in configs.changed.items():
            operations += _config_operations(
                kind, name, configs.before(name) or {}, overrides or {}
            )
    return operations


def _config_operations(
    kind: ResourceType, name: str, old: Overrides, new: Overrides
) -> list[Operation]:
    """Write a resource's new overrides. A resource without overrides has no node."""
    path = CONFIG_PATHS[kind](name)
    if not new:
        return [Delete(path)] if old else []
    data = znodes.encode_configs(new)
    return [Set(path, data) if old else Create(path, data)]


def _quota_operations(delta: MetadataDelta, new: MetadataImage) -> list[Operation]:
    """Compare the nodes of the changed entities, and of all entities with the same users.

    The node of a user exists as long as there is any entity with that user.
    """
    changed = delta.client_quotas.changed
    if not changed:
        return []
    users = {dict(entity)[USER] for entity in changed if USER in dict(entity)}

    def relevant(
        quotas: PersistentMap[Entity, Mapping[str, float]],
    ) -> dict[Entity, Mapping[str, float]]:
        return {
            entity: values
            for entity, values in quotas.unordered_items()
            if entity in changed or dict(entity).get(USER, 0) in users
        }

    return quota_operations(relevant(delta.image.client_quotas), relevant(new.client_quotas))


def _producer_id_operations(delta: MetadataDelta) -> list[Operation]:
    if delta.next_producer_id is None:
        return []  # the class of the record is not imported
    for record in reversed(delta.records):
        if isinstance(record, record_classes.ProducerIdsRecord):
            last = record.next_producer_id - 1
            first = record.next_producer_id - znodes.PRODUCER_ID_BLOCK_SIZE
            data = znodes.encode_producer_id_block(record.broker_id, first, last)
            return [Set(znodes.PRODUCER_ID_BLOCK, data)]
    return []


def _registration_operations(delta: MetadataDelta) -> list[Operation]:
    operations: list[Operation] = []
    for broker_id, registration in delta.brokers.changed.items():
        path = znodes.registration_path(broker_id)
        if registration is None:
            operations.append(Delete(path))
            continue
        data = znodes.encode_registration(registration)
        exists = delta.brokers.before(broker_id) is not None
        operations.append(Set(path, data) if exists else Create(path, data))
    return operations
