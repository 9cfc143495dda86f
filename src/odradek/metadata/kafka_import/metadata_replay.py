"""Replay of the records of ``__cluster_metadata`` to the last state of a Kafka cluster.

The rules are those of Kafka's images (``TopicsDelta``, ``PartitionRegistration.merge``,
``ConfigurationsDelta``). Records between BeginTransaction and EndTransaction take effect together
or not at all. Record types without relevant state are skipped.
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
# Metadata that Odradek does not use, but reports to the operator: type -> (name, change of count).
_UNUSED = {
    10: ("delegation tokens", 1),
    26: ("delegation tokens", -1),
    11: ("SCRAM credentials", 1),
    22: ("SCRAM credentials", -1),
    18: ("access control entries", 1),
    19: ("access control entries", -1),
}


@dataclass(slots=True)
class ImportedPartition:
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(slots=True)
class ImportedTopic:
    name: str
    topic_id: Uuid
    partitions: dict[int, ImportedPartition] = field(default_factory=dict)


@dataclass(slots=True)
class ImportedCluster:
    """The last state of a Kafka cluster. `configs` is by the resource's type number and name."""

    topics: dict[Uuid, ImportedTopic] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    quotas: dict[Entity, dict[str, float]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    unused: Counter[str] = field(default_factory=Counter)


def replay(frames: Iterable[Frame]) -> ImportedCluster:
    """Return the cluster after all records. A transaction that has not ended has no effect.

    Raises:
        UnreadableMetadata: A record is invalid or too new.
    """
    cluster = ImportedCluster()
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


def _apply(cluster: ImportedCluster, frame: Frame) -> None:
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
        text = f"Kafka's metadata has an invalid {cls.__name__}: {error!r}"
        raise UnreadableMetadata(text) from error


def _topic(cluster: ImportedCluster, record: TopicRecord) -> None:
    cluster.topics[record.topic_id] = ImportedTopic(record.name, record.topic_id)


def _partition(cluster: ImportedCluster, record: PartitionRecord) -> None:
    cluster.topics[record.topic_id].partitions[record.partition_id] = ImportedPartition(
        record.leader_epoch, tuple(record.replicas), tuple(record.isr)
    )


def _partition_change(cluster: ImportedCluster, record: PartitionChangeRecord) -> None:
    partition = cluster.topics[record.topic_id].partitions[record.partition_id]
    if record.leader != LEADER_UNCHANGED:
        partition.leader_epoch += 1
    if record.replicas is not None:
        partition.replicas = tuple(record.replicas)
    if record.isr is not None:
        partition.isr = tuple(record.isr)


def _remove_topic(cluster: ImportedCluster, record: RemoveTopicRecord) -> None:
    topic = cluster.topics.pop(record.topic_id)
    cluster.configs.pop((ResourceType.TOPIC, topic.name), None)


def _config(cluster: ImportedCluster, record: ConfigRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    configs = cluster.configs.setdefault(resource, {})
    if record.value is None:
        configs.pop(record.name, None)
    else:
        configs[record.name] = record.value
    if not configs:
        del cluster.configs[resource]


def _feature(cluster: ImportedCluster, record: FeatureLevelRecord) -> None:
    cluster.features[record.name] = record.feature_level
    if record.feature_level == 0:
        del cluster.features[record.name]


def _quota(cluster: ImportedCluster, record: ClientQuotaRecord) -> None:
    entity = entity_of((part.entity_type, part.entity_name) for part in record.entity)
    values = cluster.quotas.setdefault(entity, {})
    if record.remove:
        values.pop(record.key, None)
    else:
        values[record.key] = record.value
    if not values:
        del cluster.quotas[entity]


def _producer_ids(cluster: ImportedCluster, record: ProducerIdsRecord) -> None:
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
