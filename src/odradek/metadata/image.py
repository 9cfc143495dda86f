"""The metadata of the cluster at one time: a frozen value, replaced as a whole on every change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.quotas import Quotas

NO_LEADER = BrokerId(-1)
_NOTHING: Mapping[str, Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one listener of a broker."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker. `host` and `port` are those of its first listener."""

    id: BrokerId
    host: str
    port: int
    rack: str | None = None
    listeners: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """A partition's leader and replicas. Every change raises `partition_epoch`."""

    partition: int
    leader: BrokerId
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic. `partitions` is in the order of their numbers, from 0."""

    name: TopicName
    topic_id: Uuid
    partitions: tuple[PartitionImage, ...]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All metadata of the cluster.

    Attributes:
        broker_configs: The overrides by broker id as text, or "" for all brokers, as in the
            protocol.
        offset: Rises with every change that is published.
    """

    cluster_id: str = ""
    controller_id: BrokerId = NO_LEADER
    brokers: Mapping[BrokerId, BrokerRegistration] = field(default_factory=dict)
    topics_by_name: Mapping[TopicName, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    topic_configs: Mapping[TopicName, Mapping[str, str]] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    offset: int = 0
    # Finalized levels by name. A feature that is absent is at level 0.
    features: Mapping[str, int] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    client_quotas: Quotas = field(default_factory=dict)
    # Topics that were deleted, by id, until all of their logs are removed.
    deletions: Mapping[Uuid, TopicName] = field(default_factory=dict)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        found = self.topics_by_name.get(TopicName(topic))
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        return found.partitions[partition]

    def partition_count(self, topic: str) -> int:
        """Return 0 when the topic does not exist."""
        found = self.topics_by_name.get(TopicName(topic))
        return 0 if found is None else len(found.partitions)

    def with_topics(
        self,
        changed: Mapping[TopicName, TopicImage],
        configs: Mapping[TopicName, Mapping[str, str]],
    ) -> MetadataImage:
        """Return the image with topics added or replaced, and configs of some topics replaced."""
        return replace(
            self,
            topics_by_name={**self.topics_by_name, **changed},
            topics_by_id={**self.topics_by_id, **{t.topic_id: t for t in changed.values()}},
            topic_configs={**self.topic_configs, **configs},
            offset=self.offset + 1,
        )

    def without_topics(self, names: set[TopicName]) -> MetadataImage:
        """Return the image with these topics deleted and their deletions recorded."""
        ids = {self.topics_by_name[name].topic_id: name for name in names}
        return replace(
            self,
            topics_by_name={n: t for n, t in self.topics_by_name.items() if n not in names},
            topics_by_id={i: t for i, t in self.topics_by_id.items() if i not in ids},
            topic_configs={n: c for n, c in self.topic_configs.items() if n not in names},
            deletions={**self.deletions, **ids},
            offset=self.offset + 1,
        )

    def without_deletions(self, topic_ids: Collection[Uuid]) -> MetadataImage:
        """Return the image without the records of deletions that are finished."""
        deletions = {i: name for i, name in self.deletions.items() if i not in topic_ids}
        return replace(self, deletions=deletions)

    def with_configs(
        self,
        topics: Mapping[TopicName, Mapping[str, str]],
        brokers: Mapping[str, Mapping[str, str]],
        groups: Mapping[str, Mapping[str, str]] = _NOTHING,
        client_metrics: Mapping[str, Mapping[str, str]] = _NOTHING,
    ) -> MetadataImage:
        """Return the image with the overrides of some resources replaced."""
        return replace(
            self,
            topic_configs={**self.topic_configs, **topics},
            broker_configs=_with(self.broker_configs, brokers),
            group_configs=_with(self.group_configs, groups),
            client_metrics=_with(self.client_metrics, client_metrics),
            offset=self.offset + 1,
        )

    def with_quotas(self, quotas: Quotas) -> MetadataImage:
        """Return the image with all client quotas replaced."""
        return replace(self, client_quotas=quotas, offset=self.offset + 1)

    def with_features(self, levels: Mapping[str, int]) -> MetadataImage:
        """Return the image with the finalized features replaced."""
        return replace(self, features=levels, offset=self.offset + 1)


def _with(
    before: Mapping[str, Mapping[str, str]], changes: Mapping[str, Mapping[str, str]]
) -> Mapping[str, Mapping[str, str]]:
    """Replace some overrides. Drop the resources that have no overrides left."""
    if not changes:
        return before
    return {name: values for name, values in {**before, **changes}.items() if values}
