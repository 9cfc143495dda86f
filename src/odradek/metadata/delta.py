"""The changes of an image by ordered records: Kafka's ``MetadataDelta``. Pure.

A `MetadataDelta` replays records on top of an image. `apply` returns the image after them. The
delta then says what changed, so that subscribers visit only that. The same replay is used for a
change that the controller commits, for a change that a broker receives, and for the load of whole
metadata. Its cost depends on the number of records, not on the size of the image.

The rules are those of Kafka's ``ClusterDelta``, ``TopicsDelta``, ``PartitionRegistration.merge``,
``ConfigurationsDelta``, ``ClientQuotasDelta`` and ``FeaturesDelta``. Two rules are added, because
logs are deleted only for a recorded deletion:

* A RemoveTopicRecord records the deletion, with all brokers that have replicas.
* A TopicDeletionRecord replaces the recorded deletion of a topic. Without brokers it ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from odradek.ids import ZERO_UUID, BrokerId, TopicName, Uuid
from odradek.metadata.image import (
    BrokerRegistration,
    Endpoint,
    LeaderRecoveryState,
    MetadataImage,
    Overrides,
    PartitionImage,
    SecurityProtocol,
    TopicDeletion,
    TopicImage,
    deletion_of,
)
from odradek.metadata.persistent import CHUNK_LENGTH, PersistentMap
from odradek.metadata.quotas import Entity, entity_of
from odradek.metadata.records import InvalidRecord, MetadataRecord
from odradek.metadata.resources import ResourceType
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion

if TYPE_CHECKING:
    from odradek.protocol.messages.broker_registration_change_record import (
        BrokerRegistrationChangeRecord,
    )
    from odradek.protocol.messages.client_quota_record import ClientQuotaRecord
    from odradek.protocol.messages.config_record import ConfigRecord
    from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
    from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
    from odradek.protocol.messages.partition_record import PartitionRecord
    from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
    from odradek.protocol.messages.register_broker_record import RegisterBrokerRecord
    from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
    from odradek.protocol.messages.topic_deletion_record import TopicDeletionRecord
    from odradek.protocol.messages.topic_record import TopicRecord
    from odradek.protocol.messages.unregister_broker_record import UnregisterBrokerRecord

LEADER_UNCHANGED = -2
RECOVERY_STATE_UNCHANGED = -1
_MAPS = (
    "brokers",
    "topic_configs",
    "broker_configs",
    "group_configs",
    "client_metrics",
    "features",
    "client_quotas",
    "deletions",
)
_FENCING = {-1: False, 1: True}
_NO_OVERRIDES: Overrides = {}
_NO_RATES: Mapping[str, float] = {}

K = TypeVar("K")
V = TypeVar("V")


class MetadataProvenance(NamedTuple):
    """The origin of an image: the controller, and the position in the changes of the metadata."""

    controller_id: BrokerId
    controller_epoch: int
    offset: int


class MapDelta(Generic[K, V]):
    """Changes of one map of an image. `changed` has the new value of a key, or None if removed."""

    __slots__ = ("_base", "changed")

    def __init__(self, base: PersistentMap[K, V]) -> None:
        self._base = base
        self.changed: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        """Return the value after the records that were replayed so far."""
        return self.changed[key] if key in self.changed else self._base.get(key)

    def before(self, key: K) -> V | None:
        """Return the value before the records."""
        return self._base.get(key)

    def set(self, key: K, value: V | None) -> None:
        self.changed[key] = value

    def apply(self) -> PersistentMap[K, V]:
        if not self.changed:
            return self._base
        kept = {key: value for key, value in self.changed.items() if value is not None}
        return self._base.with_changes(
            kept, [key for key, value in self.changed.items() if value is None]
        )

    def released(self) -> Iterator[int]:
        """Drop the contents in steps. Yield the number of values of each step."""
        self._base = PersistentMap()
        while self.changed:
            self.changed.popitem()
            yield 1


class TopicDelta:
    """Changes of one topic. `before` is None for a new topic."""

    __slots__ = ("before", "name", "partitions", "topic_id")

    def __init__(self, name: TopicName, topic_id: Uuid, before: TopicImage | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.before = before
        self.partitions: dict[int, PartitionImage] = {}

    @property
    def adds_partitions(self) -> bool:
        """Whether the topic is new, or has more partitions than before."""
        before = self.before
        return before is None or any(each >= before.partition_count for each in self.partitions)

    def partition(self, number: int) -> PartitionImage | None:
        """Return a partition after the records that were replayed so far."""
        found = self.partitions.get(number)
        if found is None and self.before is not None and 0 <= number < self.before.partition_count:
            return self.before.partitions[number]
        return found

    def apply(self) -> TopicImage:
        before = self.before.partitions if self.before is not None else ()
        topic = TopicImage(self.name, self.topic_id, before)
        try:
            partitions = topic.partitions.with_changes(self.partitions)
        except IndexError as error:
            raise InvalidRecord(
                f"the partitions of topic {self.name} are {sorted(self.partitions)}, and must be "
                "consecutive from 0"
            ) from error
        return TopicImage(self.name, self.topic_id, partitions)

    def released(self) -> Iterator[int]:
        """Drop the contents in steps. Yield the number of partitions of each step.

        A partition of `before` that was changed is freed with it, if its image has no other users.
        """
        changed = len(self.partitions)
        while self.partitions:
            count = min(CHUNK_LENGTH, len(self.partitions))
            for _ in range(count):
                self.partitions.popitem()
            yield count
        if self.before is not None and changed > CHUNK_LENGTH:
            old_partitions = _released(self.before)
            self.before = None
            yield from old_partitions


def _released(topic: TopicImage) -> Iterator[int]:
    """Drop the last reference to a topic in steps. Yield the number of partitions of each step."""
    chunks = list(topic.partitions.chunks)
    del topic
    while chunks:
        yield len(chunks.pop())


class TopicsDelta:
    """Changes of the topics.

    Attributes:
        changed: New topics, and topics with new or changed partitions, by topic id.
        removed: The topics of the old image that were removed, by topic id.
    """

    __slots__ = ("_by_id", "_by_name", "_names", "changed", "removed")

    def __init__(self, image: MetadataImage) -> None:
        self._by_id = image.topics_by_id
        self._by_name = image.topics_by_name
        self._names: dict[TopicName, Uuid | None] = {}
        self.changed: dict[Uuid, TopicDelta] = {}
        self.removed: dict[Uuid, TopicImage] = {}

    def has_name(self, name: TopicName) -> bool:
        if name in self._names:
            return self._names[name] is not None
        return name in self._by_name

    def topic(self, topic_id: Uuid) -> TopicDelta:
        """Return the changes of an existing topic, which may be none yet.

        Raises:
            InvalidRecord: The topic does not exist.
        """
        found = self.changed.get(topic_id)
        if found is None:
            before = self._by_id.get(topic_id)
            if before is None or topic_id in self.removed:
                raise InvalidRecord(f"there is no topic with the id {topic_id.hex()}")
            found = self.changed[topic_id] = TopicDelta(before.name, topic_id, before)
        return found

    def create(self, name: TopicName, topic_id: Uuid) -> None:
        if self.has_name(name):
            raise InvalidRecord(f"topic {name} exists already")
        if topic_id in self.changed or (topic_id in self._by_id and topic_id not in self.removed):
            raise InvalidRecord(f"topic {name} has the id of another topic")
        self._names[name] = topic_id
        self.changed[topic_id] = TopicDelta(name, topic_id, None)

    def remove(self, topic_id: Uuid) -> TopicImage:
        """Remove a topic, and return it as it was."""
        topic = self.topic(topic_id)
        del self.changed[topic_id]
        self._names[topic.name] = None
        if topic.before is not None:
            self.removed[topic_id] = topic.before
        return topic.apply()

    def applying(
        self,
    ) -> Generator[
        None, None, tuple[PersistentMap[TopicName, TopicImage], PersistentMap[Uuid, TopicImage]]
    ]:
        """Return the topics by name and by id, after time slices."""
        by_name = self._by_name.without(*(topic.name for topic in self.removed.values()))
        by_id = self._by_id.without(*self.removed)
        topics: dict[Uuid, TopicImage] = {}
        left = ELEMENTS_PER_SLICE
        for topic_id, delta in self.changed.items():
            topics[topic_id] = delta.apply()
            left -= 1 + len(delta.partitions) // 8
            if left <= 0:
                left = ELEMENTS_PER_SLICE
                by_id = by_id.with_changes(topics)
                by_name = by_name.with_changes({topic.name: topic for topic in topics.values()})
                topics = {}
                yield
        if topics:
            by_id = by_id.with_changes(topics)
            by_name = by_name.with_changes({topic.name: topic for topic in topics.values()})
        return by_name, by_id

    def released(self) -> Iterator[int]:
        """Drop the contents in steps. Yield the number of partitions of each step."""
        self._by_id, self._by_name = PersistentMap(), PersistentMap()
        while self.changed:
            yield 1
            yield from self.changed.popitem()[1].released()
        while self.removed:
            yield 1
            yield from _released(self.removed.popitem()[1])


class MetadataDelta:
    """Ordered records on top of an image, with the changes that they make.

    Only `replay`, `replaying` and `register` change a delta. After `apply` it is only read, until
    `releasing` drops its contents. A record that does not fit raises InvalidRecord. The delta must
    then be dropped, and the image is as before.

    Attributes:
        image: The image before the records.
        topics: The changes of topics and partitions.
        records: The records that were replayed.
        next_producer_id: The new value, or None if it has not changed.

    The other attributes are the changes of the maps of the image that have the same names.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.records: list[MetadataRecord] = []
        self.topics = TopicsDelta(image)
        self.brokers = MapDelta(image.brokers)
        self.topic_configs = MapDelta(image.topic_configs)
        self.broker_configs = MapDelta(image.broker_configs)
        self.group_configs = MapDelta(image.group_configs)
        self.client_metrics = MapDelta(image.client_metrics)
        self.features = MapDelta(image.features)
        self.client_quotas = MapDelta(image.client_quotas)
        self.deletions = MapDelta(image.deletions)
        self.next_producer_id: int | None = None

    def replay(self, record: MetadataRecord) -> None:
        """Replay one record.

        Raises:
            InvalidRecord: The record does not fit.
        """
        try:
            _REPLAYS[type(record).__name__](self, record)
        except InvalidRecord:
            raise
        except ValueError as error:  # a number that is not in an enumeration
            raise InvalidRecord(f"invalid {type(record).__name__}: {error}") from error
        self.records.append(record)

    def register(self, broker: BrokerRegistration) -> None:
        """Register a broker, as its RegisterBrokerRecord does. `records` does not have it."""
        self.brokers.set(broker.id, broker)

    def replaying(self, records: Iterable[MetadataRecord | None]) -> Generator[None, None, None]:
        """Replay records in time slices. None counts as one, and changes nothing.

        Raises:
            InvalidRecord: A record does not fit.
        """
        left = ELEMENTS_PER_SLICE
        for record in records:
            if record is not None:
                self.replay(record)
            left -= 1
            if not left or type(record).__name__ == _VISITS_ALL_PARTITIONS:
                left = ELEMENTS_PER_SLICE
                yield

    def releasing(self) -> Generator[None, None, None]:
        """Drop the contents in time slices, after their last use.

        The interpreter frees 10,000 partitions in ten milliseconds. The partitions that the records
        have replaced or removed are freed here, too, unless the old image has other users.
        """
        self.image = MetadataImage()
        left = ELEMENTS_PER_SLICE
        for count in self._released():
            left -= count
            if left <= 0:
                left = ELEMENTS_PER_SLICE
                yield

    def _released(self) -> Iterator[int]:
        while self.records:
            self.records.pop()
            yield 1
        yield from self.topics.released()
        for name in _MAPS:
            yield from getattr(self, name).released()

    def apply(self, provenance: MetadataProvenance) -> MetadataImage:
        """Return the image after the records.

        Raises:
            InvalidRecord: The partitions of a topic are not consecutive.
        """
        return run_to_completion(self.applying(provenance))

    def applying(self, provenance: MetadataProvenance) -> Generator[None, None, MetadataImage]:
        """Return the image after the records, in time slices."""
        image = self.image
        by_name, by_id = image.topics_by_name, image.topics_by_id
        topics_offset = image.topics_offset
        if self.topics.changed or self.topics.removed:
            by_name, by_id = yield from self.topics.applying()
            if self.topics.removed or any(
                each.adds_partitions for each in self.topics.changed.values()
            ):
                topics_offset = provenance.offset
        next_producer_id = self.next_producer_id
        return MetadataImage(
            cluster_id=image.cluster_id,
            controller_id=provenance.controller_id,
            controller_epoch=provenance.controller_epoch,
            offset=provenance.offset,
            brokers=self.brokers.apply(),
            topics_by_name=by_name,
            topics_by_id=by_id,
            topic_configs=self.topic_configs.apply(),
            broker_configs=self.broker_configs.apply(),
            features=self.features.apply(),
            group_configs=self.group_configs.apply(),
            client_metrics=self.client_metrics.apply(),
            client_quotas=self.client_quotas.apply(),
            deletions=self.deletions.apply(),
            next_producer_id=(
                image.next_producer_id if next_producer_id is None else next_producer_id
            ),
            topics_offset=topics_offset,
        )

    def configs(self, kind: ResourceType) -> MapDelta[Any, Overrides] | None:
        """Return the changes of one kind of configs, or None if the kind has no configs here."""
        by_kind: dict[ResourceType, MapDelta[Any, Overrides]] = {
            ResourceType.TOPIC: self.topic_configs,
            ResourceType.BROKER: self.broker_configs,
            ResourceType.GROUP: self.group_configs,
            ResourceType.CLIENT_METRICS: self.client_metrics,
        }
        return by_kind.get(kind)


def whole_delta(image: MetadataImage) -> MetadataDelta:
    """Return the delta from an empty image to `image`, without records."""
    delta = MetadataDelta(MetadataImage())
    for topic in image.topics_by_id.values():
        changes = delta.topics.changed[topic.topic_id] = TopicDelta(
            topic.name, topic.topic_id, None
        )
        changes.partitions = dict(enumerate(topic.partitions))
    for name in _MAPS:
        getattr(delta, name).changed.update(getattr(image, name))
    delta.next_producer_id = image.next_producer_id
    return delta


# --- brokers ---


def _register_broker(delta: MetadataDelta, record: RegisterBrokerRecord) -> None:
    listeners = tuple(
        Endpoint(each.name, each.host, each.port, SecurityProtocol(each.security_protocol))
        for each in record.end_points
    )
    broker = BrokerRegistration(
        id=BrokerId(record.broker_id),
        host=listeners[0].host if listeners else "",
        port=listeners[0].port if listeners else -1,
        rack=record.rack,
        listeners=listeners,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        features={
            each.name: (each.min_supported_version, each.max_supported_version)
            for each in record.features
        },
        directories=tuple(record.log_dirs),
        boot_id=record.boot_id,
        drained=record.drained,
    )
    delta.register(broker)


def _registered(
    delta: MetadataDelta, record: UnregisterBrokerRecord | BrokerRegistrationChangeRecord
) -> BrokerRegistration:
    found = delta.brokers.get(BrokerId(record.broker_id))
    if found is None or found.epoch != record.broker_epoch:
        raise InvalidRecord(
            f"broker {record.broker_id} is not registered with the epoch {record.broker_epoch}"
        )
    return found


def _unregister_broker(delta: MetadataDelta, record: UnregisterBrokerRecord) -> None:
    delta.brokers.set(_registered(delta, record).id, None)


def _broker_registration_change(
    delta: MetadataDelta, record: BrokerRegistrationChangeRecord
) -> None:
    before = _registered(delta, record)
    delta.brokers.set(
        before.id,
        replace(
            before,
            fenced=_FENCING.get(record.fenced, before.fenced),
            in_controlled_shutdown=_FENCING.get(
                record.in_controlled_shutdown, before.in_controlled_shutdown
            ),
            directories=tuple(record.log_dirs) or before.directories,
            drained=_FENCING.get(record.drained, before.drained),
        ),
    )


# --- topics ---


def _topic(delta: MetadataDelta, record: TopicRecord) -> None:
    delta.topics.create(TopicName(record.name), record.topic_id)


def _partition(delta: MetadataDelta, record: PartitionRecord) -> None:
    """Create a partition, or replace all of its state."""
    delta.topics.topic(record.topic_id).partitions[record.partition_id] = PartitionImage(
        partition=record.partition_id,
        leader=BrokerId(record.leader),
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        replicas=_ids(record.replicas),
        isr=_ids(record.isr),
        adding_replicas=_ids(record.adding_replicas),
        removing_replicas=_ids(record.removing_replicas),
        elr=_ids(record.eligible_leader_replicas or ()),
        last_known_elr=_ids(record.last_known_elr or ()),
        leader_recovery_state=LeaderRecoveryState(record.leader_recovery_state),
        directories=tuple(record.directories),
    )


def _partition_change(delta: MetadataDelta, record: PartitionChangeRecord) -> None:
    topic = delta.topics.topic(record.topic_id)
    before = topic.partition(record.partition_id)
    if before is None:
        raise InvalidRecord(f"topic {topic.name} has no partition {record.partition_id}")
    topic.partitions[record.partition_id] = merged(before, record)


def merged(before: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Return a partition after a change (``PartitionRegistration.merge``)."""
    elects = record.leader != LEADER_UNCHANGED
    recovery = record.leader_recovery_state
    return PartitionImage(
        partition=before.partition,
        leader=BrokerId(record.leader) if elects else before.leader,
        leader_epoch=before.leader_epoch + elects,
        partition_epoch=before.partition_epoch + 1,
        replicas=_changed(record.replicas, before.replicas),
        isr=_changed(record.isr, before.isr),
        adding_replicas=_changed(record.adding_replicas, before.adding_replicas),
        removing_replicas=_changed(record.removing_replicas, before.removing_replicas),
        elr=_changed(record.eligible_leader_replicas, before.elr),
        last_known_elr=_changed(record.last_known_elr, before.last_known_elr),
        leader_recovery_state=(
            before.leader_recovery_state
            if recovery == RECOVERY_STATE_UNCHANGED
            else LeaderRecoveryState(recovery)
        ),
        directories=_directories(before, record),
    )


def _directories(before: PartitionImage, record: PartitionChangeRecord) -> tuple[Uuid, ...]:
    """Return the directories of the replicas. A replica that is new has none yet."""
    if record.directories is not None:
        return tuple(record.directories)
    if record.replicas is None or not before.directories:
        return before.directories
    known = dict(zip(before.replicas, before.directories, strict=False))
    return tuple(known.get(BrokerId(each), ZERO_UUID) for each in record.replicas)


def _ids(brokers: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(brokers)  # type: ignore[arg-type]


def _changed(new: list[int] | None, before: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return before if new is None else _ids(new)


def _remove_topic(delta: MetadataDelta, record: RemoveTopicRecord) -> None:
    topic = delta.topics.remove(record.topic_id)
    if delta.topic_configs.get(topic.name) is not None:
        delta.topic_configs.set(topic.name, None)
    deletion = deletion_of(topic)
    delta.deletions.set(topic.topic_id, deletion if deletion.brokers else None)


def _topic_deletion(delta: MetadataDelta, record: TopicDeletionRecord) -> None:
    deletion = TopicDeletion(TopicName(record.name), _ids(record.brokers))
    delta.deletions.set(record.topic_id, deletion if deletion.brokers else None)


# --- configs, quotas, features, producer ids ---


def _config(delta: MetadataDelta, record: ConfigRecord) -> None:
    configs = delta.configs(ResourceType(record.resource_type))
    if configs is None:
        raise InvalidRecord(f"resources of type {record.resource_type} have no configs")
    overrides = dict(configs.get(record.resource_name) or _NO_OVERRIDES)
    if record.value is None:
        overrides.pop(record.name, None)
    else:
        overrides[record.name] = record.value
    configs.set(record.resource_name, overrides or None)


def _quota(delta: MetadataDelta, record: ClientQuotaRecord) -> None:
    entity: Entity = entity_of((part.entity_type, part.entity_name) for part in record.entity)
    rates = dict(delta.client_quotas.get(entity) or _NO_RATES)
    if record.remove:
        rates.pop(record.key, None)
    else:
        rates[record.key] = record.value
    delta.client_quotas.set(entity, rates or None)


def _feature(delta: MetadataDelta, record: FeatureLevelRecord) -> None:
    delta.features.set(record.name, record.feature_level or None)


def _producer_ids(delta: MetadataDelta, record: ProducerIdsRecord) -> None:
    delta.next_producer_id = record.next_producer_id


_REPLAYS: dict[str, Callable[[MetadataDelta, Any], None]] = {
    "RegisterBrokerRecord": _register_broker,
    "UnregisterBrokerRecord": _unregister_broker,
    "BrokerRegistrationChangeRecord": _broker_registration_change,
    "TopicRecord": _topic,
    "PartitionRecord": _partition,
    "PartitionChangeRecord": _partition_change,
    "RemoveTopicRecord": _remove_topic,
    "TopicDeletionRecord": _topic_deletion,
    "ConfigRecord": _config,
    "ClientQuotaRecord": _quota,
    "FeatureLevelRecord": _feature,
    "ProducerIdsRecord": _producer_ids,
}
"""By the name of the class, so that no class is imported before its first record."""

_VISITS_ALL_PARTITIONS = "RemoveTopicRecord"
"""The record whose replay visits all partitions of a topic. It ends its time slice."""
