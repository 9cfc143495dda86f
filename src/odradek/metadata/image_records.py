"""Images as records, and the difference of two images as records. Pure.

A broker that cannot continue with deltas, because of a gap or a new controller, gets the records of
a whole image. It applies the difference to its own image, so that its subscribers visit only what
changed. All functions are generators, because an image may have 100,000 partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import TypeVar

from odradek.ids import BrokerId, Uuid
from odradek.metadata import record_classes
from odradek.metadata.delta import merged
from odradek.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    Overrides,
    PartitionImage,
    TopicDeletion,
    TopicImage,
    deletion_of,
)
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.quotas import Entity
from odradek.metadata.records import MetadataRecord
from odradek.metadata.resources import ResourceType

_REPLICA_SETS = {
    "isr": "isr",
    "replicas": "replicas",
    "removing_replicas": "removing_replicas",
    "adding_replicas": "adding_replicas",
    "eligible_leader_replicas": "elr",
    "last_known_elr": "last_known_elr",
}
"""The fields of a PartitionChangeRecord, and those of a `PartitionImage`."""

K = TypeVar("K")
V = TypeVar("V")
_NO_OVERRIDES: Overrides = {}
_NO_RATES: Mapping[str, float] = {}


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yield records that make `image` out of an empty one, always in the same order."""
    return difference(MetadataImage(), image)


def difference(old: MetadataImage, new: MetadataImage) -> Iterator[MetadataRecord]:
    """Yield records that make the contents of `new` out of `old`.

    Cluster id, controller and offset are not in records. A topic that is absent from `new` without
    a recorded deletion is removed and its deletion is ended. Nothing deletes its logs.
    """
    return (record for record in compared(old, new) if record is not None)


def compared(old: MetadataImage, new: MetadataImage) -> Iterator[MetadataRecord | None]:
    """Yield the records of `difference`, and None for each element that is equal.

    A caller that counts the elements can end its time slice although nothing differs.
    """
    yield from _features(old, new)
    yield from _brokers(old, new)
    removed: list[TopicImage] = []
    for topic_id, topic in old.topics_by_id.items():
        if _is_removed(topic, topic_id, new):
            removed.append(topic)
            yield record_classes.RemoveTopicRecord(topic.topic_id)
        else:
            yield None
    for topic_id, topic in new.topics_by_id.items():
        before = old.topics_by_id.get(topic_id)
        if topic is before:
            yield None
            continue
        if before is not None and _is_removed(before, topic_id, new):
            before = None
        yield from (
            topic_records(None, topic) if before is None else _compared_partitions(before, topic)
        )
    yield from _deletions(old, new, removed)
    configs = old.topic_configs.without(*(topic.name for topic in removed))
    yield from _configs(ResourceType.TOPIC, configs, new.topic_configs)
    yield from _configs(ResourceType.BROKER, old.broker_configs, new.broker_configs)
    yield from _configs(ResourceType.GROUP, old.group_configs, new.group_configs)
    yield from _configs(ResourceType.CLIENT_METRICS, old.client_metrics, new.client_metrics)
    yield from _compared_maps(old.client_quotas, new.client_quotas, quota_records)
    if new.next_producer_id != old.next_producer_id:
        yield record_classes.ProducerIdsRecord(next_producer_id=new.next_producer_id)


def _is_removed(topic: TopicImage, topic_id: Uuid, new: MetadataImage) -> bool:
    """Return whether a topic ends. With another name or fewer partitions it begins again."""
    after = new.topics_by_id.get(topic_id)
    return (
        after is None or after.name != topic.name or after.partition_count < topic.partition_count
    )


def _compared_maps(
    old: PersistentMap[K, V],
    new: PersistentMap[K, V],
    records: Callable[[K, V | None, V | None], Iterable[MetadataRecord]],
) -> Iterator[MetadataRecord | None]:
    """Yield `records(key, before, after)` of each entry that differs, None for each equal one."""
    if old is new:
        return
    for key, before in old.items():
        if key in new:
            yield None
        else:
            yield from records(key, before, None)
    for key, after in new.items():
        found = old.get(key)
        if found is after or found == after:
            yield None
        else:
            yield from records(key, found, after)


# --- topics ---


def topic_records(before: TopicImage | None, topic: TopicImage) -> Iterator[MetadataRecord]:
    """Yield the records of a topic: all of it if it is new, otherwise changed partitions."""
    if before is None:
        yield record_classes.TopicRecord(topic.name, topic.topic_id)
        for partition in topic.partitions:
            yield partition_record(topic.topic_id, partition)
        return
    yield from (each for each in _compared_partitions(before, topic) if each is not None)


def _compared_partitions(before: TopicImage, topic: TopicImage) -> Iterator[MetadataRecord | None]:
    for number, partition in enumerate(topic.partitions):
        if number >= before.partition_count or before.partitions[number] != partition:
            yield partition_record(topic.topic_id, partition)
        else:
            yield None


def partition_record(topic_id: Uuid, partition: PartitionImage) -> record_classes.PartitionRecord:
    """Return the record of the whole state of a partition."""
    return record_classes.PartitionRecord(
        partition_id=partition.partition,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=int(partition.leader_recovery_state),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def partition_change(
    topic_id: Uuid, before: PartitionImage, after: PartitionImage
) -> record_classes.PartitionChangeRecord | record_classes.PartitionRecord | None:
    """Return the record of the change of an existing partition, or None if nothing changes.

    It is a PartitionChangeRecord, unless the leader epoch rises by more than one: then it is the
    whole state.
    """
    if after == before:
        return None
    record = record_classes.PartitionChangeRecord(after.partition, topic_id)
    if after.leader != before.leader or after.leader_epoch != before.leader_epoch:
        record.leader = after.leader
    for name, field in _REPLICA_SETS.items():
        if getattr(after, field) != getattr(before, field):
            setattr(record, name, list(getattr(after, field)))
    if after.leader_recovery_state != before.leader_recovery_state:
        record.leader_recovery_state = int(after.leader_recovery_state)
    if after.directories != before.directories or record.replicas is not None:
        record.directories = list(after.directories)
    return record if merged(before, record) == after else partition_record(topic_id, after)


def _deletions(
    old: MetadataImage, new: MetadataImage, removed: list[TopicImage]
) -> Iterator[MetadataRecord | None]:
    def records(
        topic_id: Uuid, before: TopicDeletion | None, after: TopicDeletion | None
    ) -> Iterator[MetadataRecord]:
        if after is not None:
            yield deletion_record(topic_id, after)
        elif before is not None and before.brokers:
            yield deletion_record(topic_id, TopicDeletion(before.name, ()))

    ended = {}
    for topic in removed:
        ended[topic.topic_id] = deletion_of(topic)
        yield from repeat(None, topic.partition_count)
    yield from _compared_maps(old.deletions.with_changes(ended), new.deletions, records)


def deletion_record(topic_id: Uuid, deletion: TopicDeletion) -> record_classes.TopicDeletionRecord:
    """Return the record of a deletion. Without brokers it ends the deletion."""
    return record_classes.TopicDeletionRecord(topic_id, deletion.name, list(deletion.brokers))


# --- brokers, features, configs, quotas ---


def _features(old: MetadataImage, new: MetadataImage) -> Iterator[MetadataRecord | None]:
    def records(name: str, _before: int | None, level: int | None) -> Iterator[MetadataRecord]:
        yield record_classes.FeatureLevelRecord(name, level or 0)

    yield from _compared_maps(old.features, new.features, records)


def _brokers(old: MetadataImage, new: MetadataImage) -> Iterator[MetadataRecord | None]:
    def records(
        broker_id: BrokerId, before: BrokerRegistration | None, after: BrokerRegistration | None
    ) -> Iterator[MetadataRecord]:
        if after is not None:
            yield registration_record(after)
        elif before is not None:
            yield record_classes.UnregisterBrokerRecord(broker_id, before.epoch)

    yield from _compared_maps(old.brokers, new.brokers, records)


def registration_record(broker: BrokerRegistration) -> record_classes.RegisterBrokerRecord:
    """Return the record of a broker's registration with its whole state."""
    return record_classes.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            record_classes.BrokerEndpoint(
                each.listener, each.host, each.port, int(each.security_protocol)
            )
            for each in broker.listeners
        ],
        features=[
            record_classes.BrokerFeature(name, low, high)
            for name, (low, high) in sorted(broker.features.items())
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories),
        boot_id=broker.boot_id,
        drained=broker.drained,
    )


def _configs(
    kind: ResourceType, old: PersistentMap[K, Overrides], new: PersistentMap[K, Overrides]
) -> Iterator[MetadataRecord | None]:
    def records(
        name: K, before: Overrides | None, after: Overrides | None
    ) -> Iterator[MetadataRecord]:
        return config_records(kind, str(name), before, after)

    yield from _compared_maps(old, new, records)


def config_records(
    kind: ResourceType, name: str, before: Overrides | None, after: Overrides | None
) -> Iterator[record_classes.ConfigRecord]:
    """Yield the records that change a resource's overrides from `before` to `after`."""
    before, after = before or _NO_OVERRIDES, after or _NO_OVERRIDES
    for key in before:
        if key not in after:
            yield record_classes.ConfigRecord(int(kind), name, key, None)
    for key, value in after.items():
        if before.get(key) != value:
            yield record_classes.ConfigRecord(int(kind), name, key, value)


def quota_records(
    entity: Entity, before: Mapping[str, float] | None, after: Mapping[str, float] | None
) -> Iterator[record_classes.ClientQuotaRecord]:
    """Yield the records that change an entity's quotas from `before` to `after`."""
    before, after = before or _NO_RATES, after or _NO_RATES
    for key in before:
        if key not in after:
            yield record_classes.ClientQuotaRecord(_entity_data(entity), key, remove=True)
    for key, value in after.items():
        if before.get(key) != value:
            yield record_classes.ClientQuotaRecord(_entity_data(entity), key, value)


def _entity_data(entity: Entity) -> list[record_classes.EntityData]:
    return [record_classes.EntityData(kind, name) for kind, name in entity]
