"""What the records of ``__cluster_metadata`` come to: a cluster as Kafka last knew it.

The rules are those of Kafka's images (``TopicsDelta``, ``PartitionRegistration.merge``,
``ConfigurationsDelta``). Records between BeginTransaction and EndTransaction count together or
not at all. Types that say nothing of what is kept here are passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from odradek.ids import Uuid
from odradek.metadata.config_changes import ResourceType
from odradek.metadata.kafka_import.metadata_log import Frame, UnreadableMetadata
from odradek.metadata.quotas import Entity, entity_of
from odradek.protocol.codec import Message, decode
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.client_quota_record import ClientQuotaRecord
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.partition_change_record import PartitionChangeRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_record import TopicRecord

BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION = 23, 24, 25
LEADER_UNCHANGED = -2
# What Odradek has no use for, and an operator should hear of: type -> (what it is, how many more).
_UNUSED = {
    10: ("delegation tokens", 1),
    26: ("delegation tokens", -1),
    11: ("SCRAM credentials", 1),
    22: ("SCRAM credentials", -1),
    18: ("access control entries", 1),
    19: ("access control entries", -1),
}


@dataclass(slots=True)
class FoundPartition:
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(slots=True)
class FoundTopic:
    name: str
    topic_id: Uuid
    partitions: dict[int, FoundPartition] = field(default_factory=dict)


@dataclass(slots=True)
class FoundCluster:
    """A cluster as Kafka left it; configs by the number of the resource's type and its name."""

    topics: dict[Uuid, FoundTopic] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    quotas: dict[Entity, dict[str, float]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    unused: Counter[str] = field(default_factory=Counter)


def replay(frames: Iterable[Frame]) -> FoundCluster:
    """The cluster after all records; UnreadableMetadata when one makes no sense or is too new. A
    transaction that has not ended has not happened.
    """
    cluster = FoundCluster()
    pending: list[Frame] | None = None
    for frame in frames:
        if frame.api_key == BEGIN_TRANSACTION:
            pending = []
        elif frame.api_key in (END_TRANSACTION, ABORT_TRANSACTION):
            if frame.api_key == END_TRANSACTION:
                for each in pending or ():
                    _apply(cluster, each)
            pending = None
        elif pending is not None:
            pending.append(frame)
        else:
            _apply(cluster, frame)
    return cluster


def _apply(cluster: FoundCluster, frame: Frame) -> None:
    if frame.api_key in _UNUSED:
        what, more = _UNUSED[frame.api_key]
        cluster.unused[what] += more
        return
    known = _RECORDS.get(frame.api_key)
    if known is None:
        return
    cls, apply = known
    if not cls.MIN_VERSION <= frame.version <= cls.MAX_VERSION:
        raise UnreadableMetadata(
            f"Kafka's metadata has a {cls.__name__} of version {frame.version}, which is newer "
            f"than {cls.MAX_VERSION}"
        )
    try:
        apply(cluster, decode(cls, frame.version, frame.body))
    except (MalformedMessage, KeyError) as error:
        text = f"Kafka's metadata has a {cls.__name__} that makes no sense: {error!r}"
        raise UnreadableMetadata(text) from error


def _topic(cluster: FoundCluster, record: TopicRecord) -> None:
    cluster.topics[record.topic_id] = FoundTopic(record.name, record.topic_id)


def _partition(cluster: FoundCluster, record: PartitionRecord) -> None:
    cluster.topics[record.topic_id].partitions[record.partition_id] = FoundPartition(
        record.leader_epoch, tuple(record.replicas), tuple(record.isr)
    )


def _partition_change(cluster: FoundCluster, record: PartitionChangeRecord) -> None:
    partition = cluster.topics[record.topic_id].partitions[record.partition_id]
    if record.leader != LEADER_UNCHANGED:
        partition.leader_epoch += 1
    if record.replicas is not None:
        partition.replicas = tuple(record.replicas)
    if record.isr is not None:
        partition.isr = tuple(record.isr)


def _remove_topic(cluster: FoundCluster, record: RemoveTopicRecord) -> None:
    topic = cluster.topics.pop(record.topic_id)
    cluster.configs.pop((ResourceType.TOPIC, topic.name), None)


def _config(cluster: FoundCluster, record: ConfigRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    configs = cluster.configs.setdefault(resource, {})
    if record.value is None:
        configs.pop(record.name, None)
    else:
        configs[record.name] = record.value
    if not configs:
        del cluster.configs[resource]


def _feature(cluster: FoundCluster, record: FeatureLevelRecord) -> None:
    cluster.features[record.name] = record.feature_level
    if record.feature_level == 0:
        del cluster.features[record.name]


def _quota(cluster: FoundCluster, record: ClientQuotaRecord) -> None:
    entity = entity_of((part.entity_type, part.entity_name) for part in record.entity)
    values = cluster.quotas.setdefault(entity, {})
    if record.remove:
        values.pop(record.key, None)
    else:
        values[record.key] = record.value
    if not values:
        del cluster.quotas[entity]


def _producer_ids(cluster: FoundCluster, record: ProducerIdsRecord) -> None:
    cluster.next_producer_id = record.next_producer_id


_APPLIED: tuple[tuple[type[Message], Callable[..., None]], ...] = (
    (TopicRecord, _topic),
    (PartitionRecord, _partition),
    (ConfigRecord, _config),
    (PartitionChangeRecord, _partition_change),
    (RemoveTopicRecord, _remove_topic),
    (FeatureLevelRecord, _feature),
    (ClientQuotaRecord, _quota),
    (ProducerIdsRecord, _producer_ids),
)
_RECORDS = {cls.API_KEY: (cls, apply) for cls, apply in _APPLIED}
