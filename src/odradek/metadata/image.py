"""The metadata of the cluster at one time: a frozen value, replaced as a whole on every change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple, TypeVar

from odradek.ids import ZERO_UUID, BrokerId, TopicName, Uuid
from odradek.metadata.persistent import PersistentMap, PersistentVector
from odradek.metadata.quotas import Entity

NO_LEADER = BrokerId(-1)
UNKNOWN_BROKER_EPOCH = -1
_NOTHING: Mapping[str, Mapping[str, str]] = {}


class SecurityProtocol(IntEnum):
    """The security protocol of a listener. The numbers are Kafka's."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class Endpoint(NamedTuple):
    """The address of one listener of a broker."""

    listener: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A registered broker. `host` and `port` are those of its first listener.

    Attributes:
        epoch: The broker epoch, which distinguishes this process from earlier ones of the same id.
            With ZooKeeper it is the czxid of the broker's node.
        incarnation_id: The random id of the broker's process.
        fenced: The broker gets no leadership and joins no ISR, because it is not known to run or
            has not caught up with the metadata.
        in_controlled_shutdown: The broker is about to stop, and gets no leadership either.
        features: The supported levels (min, max) by name of the feature.
        directories: The ids of the log directories that are online.
        boot_id: The identity of the page cache of the broker's machine when it registered
            (`PageCacheMark`; the boot id of the machine for a single broker). With the same one and
            directories, the page cache has survived the end of the previous process. Empty if it is
            unknown, or all log directories have failed.
        drained: An administrator has moved the leaderships of the broker away. It leads a partition
            only if no other in-sync replica can, and it stays in the ISRs.
    """

    id: BrokerId
    host: str
    port: int
    rack: str | None = None
    listeners: tuple[Endpoint, ...] = ()
    epoch: int = UNKNOWN_BROKER_EPOCH
    incarnation_id: Uuid = ZERO_UUID
    fenced: bool = False
    in_controlled_shutdown: bool = False
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    directories: tuple[Uuid, ...] = ()
    boot_id: str = ""
    drained: bool = False


class LeaderRecoveryState(IntEnum):
    """Whether a leader that was elected uncleanly still has to recover. The numbers are Kafka's."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """A partition's leader and replicas. Every change raises `partition_epoch`.

    Attributes:
        elr: The eligible leader replicas (KIP-966): outside of the ISR, but with all records below
            the high watermark.
        last_known_elr: Replicas that were removed from the ISR and ELR by an unclean restart.
        directories: The id of the log directory of each replica, in the order of `replicas`. Empty
            when they are not assigned.
    """

    partition: int
    leader: BrokerId
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    directories: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True, init=False)
class TopicImage:
    """A topic. `partitions` is in the order of their numbers, from 0."""

    name: TopicName
    topic_id: Uuid
    partitions: PersistentVector[PartitionImage]
    partition_count: int = field(init=False, compare=False, repr=False)

    def __init__(
        self, name: TopicName, topic_id: Uuid, partitions: Sequence[PartitionImage]
    ) -> None:
        if not isinstance(partitions, PersistentVector):
            partitions = PersistentVector(partitions)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "topic_id", topic_id)
        object.__setattr__(self, "partitions", partitions)
        object.__setattr__(self, "partition_count", len(partitions))


class TopicDeletion(NamedTuple):
    """A recorded deletion of a topic: its name, and the brokers that may still have logs of it."""

    name: TopicName
    brokers: tuple[BrokerId, ...]


Overrides = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All metadata of the cluster.

    Attributes:
        controller_epoch: The epoch of the controller that published the image. Together with
            `offset` it is the position of the image in the changes of the metadata.
        brokers: The registered brokers, fenced ones included.
        topic_configs: The overrides by topic. A topic without overrides has no entry.
        broker_configs: The overrides by broker id as text, or "" for all brokers, as in the
            protocol.
        offset: The metadata offset. It rises with every change that is published.
        features: Finalized levels by name. A feature that is absent is at level 0.
        next_producer_id: The first producer id that is in no block yet.
        topics_offset: The offset of the last change of which topics exist, or of a number of
            partitions. Two equal images may have different ones, because a broker that was given a
            whole image does not know it.
        deletions: The recorded deletions by topic id, until all logs of the topics are removed.
    """

    cluster_id: str = ""
    controller_id: BrokerId = NO_LEADER
    brokers: PersistentMap[BrokerId, BrokerRegistration] = field(default_factory=PersistentMap)
    topics_by_name: PersistentMap[TopicName, TopicImage] = field(default_factory=PersistentMap)
    topics_by_id: PersistentMap[Uuid, TopicImage] = field(default_factory=PersistentMap)
    topic_configs: PersistentMap[TopicName, Overrides] = field(default_factory=PersistentMap)
    broker_configs: PersistentMap[str, Overrides] = field(default_factory=PersistentMap)
    offset: int = 0
    features: PersistentMap[str, int] = field(default_factory=PersistentMap)
    group_configs: PersistentMap[str, Overrides] = field(default_factory=PersistentMap)
    client_metrics: PersistentMap[str, Overrides] = field(default_factory=PersistentMap)
    client_quotas: PersistentMap[Entity, Mapping[str, float]] = field(default_factory=PersistentMap)
    deletions: PersistentMap[Uuid, TopicDeletion] = field(default_factory=PersistentMap)
    controller_epoch: int = 0
    next_producer_id: int = 0
    topics_offset: int = field(default=0, compare=False)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        found = self.topics_by_name.get(TopicName(topic))
        if found is None or not 0 <= partition < found.partition_count:
            return None
        return found.partitions[partition]

    def partition_count(self, topic: str) -> int:
        """Return 0 when the topic does not exist."""
        found = self.topics_by_name.get(TopicName(topic))
        return 0 if found is None else found.partition_count

    def is_alive(self, broker: BrokerId) -> bool:
        """Return whether the broker is registered and not fenced."""
        found = self.brokers.get(broker)
        return found is not None and not found.fenced

    def is_eligible(self, broker: BrokerId) -> bool:
        """Return whether the broker may become a leader and join an ISR."""
        found = self.brokers.get(broker)
        return found is not None and not found.fenced and not found.in_controlled_shutdown

    def with_topics(
        self, changed: Mapping[TopicName, TopicImage], configs: Mapping[TopicName, Overrides]
    ) -> MetadataImage:
        """Return the image with topics added or replaced, and configs of some topics replaced."""
        return replace(
            self,
            topics_by_name=self.topics_by_name.with_changes(changed),
            topics_by_id=self.topics_by_id.with_changes({t.topic_id: t for t in changed.values()}),
            topic_configs=_with(self.topic_configs, configs),
            offset=self.offset + 1,
            topics_offset=self.offset + 1,
        )

    def with_configs(
        self,
        topics: Mapping[TopicName, Overrides],
        brokers: Mapping[str, Overrides],
        groups: Mapping[str, Overrides] = _NOTHING,
        client_metrics: Mapping[str, Overrides] = _NOTHING,
    ) -> MetadataImage:
        """Return the image with the overrides of some resources replaced."""
        return replace(
            self,
            topic_configs=_with(self.topic_configs, topics),
            broker_configs=_with(self.broker_configs, brokers),
            group_configs=_with(self.group_configs, groups),
            client_metrics=_with(self.client_metrics, client_metrics),
            offset=self.offset + 1,
        )


def deletion_of(topic: TopicImage) -> TopicDeletion:
    """Return the record of a topic's deletion, before any broker has removed its logs."""
    brokers = {broker for partition in topic.partitions for broker in partition.replicas}
    return TopicDeletion(topic.name, tuple(sorted(brokers)))


Name = TypeVar("Name", bound=str)


def _with(
    before: PersistentMap[Name, Overrides], changes: Mapping[Name, Overrides]
) -> PersistentMap[Name, Overrides]:
    """Replace some overrides. Drop the resources that have no overrides left."""
    kept = {name: values for name, values in changes.items() if values}
    return before.with_changes(kept, [name for name in changes if name not in kept])
