"""Import of a stopped Apache Kafka's cluster at the first start on its log directories.

If there is a ``__cluster_metadata`` directory, everything is imported from it. Otherwise the topics
are those of the partitions' directories, and all configs have their defaults. Metadata that Odradek
does not support is logged and left out. Kafka's metadata is never changed or removed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from odradek.config.broker import BrokerConfig
from odradek.environment.files import Files
from odradek.errors import KafkaError
from odradek.ids import BrokerId, TopicName, TopicPartition, Uuid
from odradek.log.directories.directory_names import METADATA_DIRECTORY
from odradek.log.unified_log import UnifiedLog
from odradek.metadata import znodes
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.config_changes import plan_config_change as plan_change
from odradek.metadata.features import FEATURES, default_levels
from odradek.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from odradek.metadata.internal_topics import internal_topic
from odradek.metadata.kafka_import.metadata_log import UnreadableMetadata, read_frames
from odradek.metadata.kafka_import.metadata_replay import (
    ImportedCluster,
    replay,
)
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.quota_nodes import quota_operations
from odradek.metadata.quotas import QuotaAlteration, Quotas, plan_alterations
from odradek.metadata.resources import ResourceType
from odradek.metadata.store.interface import Create, Operation
from odradek.metadata.topics import new_partition

NAMED_MAX = 5
_logger = logging.getLogger(__name__)

Logs = Mapping[TopicPartition, UnifiedLog]


@dataclass(frozen=True, slots=True)
class Takeover:
    """The cluster that broker `node_id` imports, and the first producer id not yet allocated."""

    image: MetadataImage
    node_id: BrokerId
    next_producer_id: int = 0

    def operations(self) -> list[Operation]:
        """Return its writes to a store with only the parent nodes (`znodes.PERSISTENT_PATHS`)."""
        image = self.image
        cluster = znodes.encode({"version": "1", "id": image.cluster_id})
        operations: list[Operation] = [
            Create(znodes.CLUSTER_ID, cluster),
            Create(znodes.FEATURES, znodes.encode_features(image.features)),
        ]
        for topic in image.topics_by_name.values():
            operations += znodes.create_topic_operations(topic, 0)
        for path, resources in (
            (znodes.topic_config_path, image.topic_configs),
            (znodes.broker_config_path, image.broker_configs),
            (znodes.group_config_path, image.group_configs),
            (znodes.client_metrics_path, image.client_metrics),
        ):
            operations += [
                Create(path(name), znodes.encode_configs(configs))
                for name, configs in resources.items()
                if configs
            ]
        operations += quota_operations({}, image.client_quotas)
        if self.next_producer_id:
            last = self.next_producer_id - 1
            first = max(0, last - znodes.PRODUCER_ID_BLOCK_SIZE + 1)
            block = znodes.encode_producer_id_block(self.node_id, first, last)
            operations.append(Create(znodes.PRODUCER_ID_BLOCK, block))
        return operations


def find_takeover(
    config: BrokerConfig,
    cluster_id: str,
    logs: Sequence[UnifiedLog],
    metadata_dirs: Sequence[str],
    files: Files,
    new_uuid: Callable[[], Uuid],
) -> Takeover | None:
    """Return the earlier cluster that the directories hold, or None. Blocks on the disk.

    Raises:
        UnreadableMetadata: The metadata is incomplete, so importing a part would do harm.
        OSError: A file cannot be read.
    """
    by_partition = {log.topic_partition: log for log in logs}
    for path in metadata_dirs:
        directory = f"{path}/{METADATA_DIRECTORY}"
        if files.is_dir(directory):
            found = replay(read_frames(files, directory))
            _logger.info("importing Apache Kafka's metadata from %s", directory)
            return _take_over(config, cluster_id, found, by_partition)
    if not logs:
        return None
    if len(by_partition) < len(logs):
        raise UnreadableMetadata(
            f"the log directories have several directories of {_of_several(logs)} with different "
            "topic ids. Move the directories of the wrong topic to another place"
        )
    found = _from_directories(config, by_partition, new_uuid)
    _logger.warning(
        "the log directories have %d topics, but there is no metadata store and no %s: "
        "their configs, with retention, are the defaults. Set them before old records are deleted",
        len(found.image.topics_by_id),
        METADATA_DIRECTORY,
    )
    return _take_over(config, cluster_id, found, by_partition)


def _take_over(
    config: BrokerConfig, cluster_id: str, found: ImportedCluster, logs: Logs
) -> Takeover:
    node = BrokerId(config.node_id)
    topics = [_topic_image(node, topic, logs) for topic in found.image.topics_by_id.values()]
    image = MetadataImage(
        cluster_id=cluster_id,
        controller_id=node,
        topics_by_name=PersistentMap({topic.name: topic for topic in topics}),
        topics_by_id=PersistentMap({topic.topic_id: topic for topic in topics}),
        features=PersistentMap(_features(found.image.features)),
        client_quotas=PersistentMap(_quotas(found.image.client_quotas)),
    )
    image = _with_configs(image, config, found)
    used = _highest_producer_id(logs)
    _report(image, found)
    return Takeover(image, node, max(found.image.next_producer_id, used + 1))


def _highest_producer_id(logs: Logs) -> int:
    return max((pid for log in logs.values() for pid in log.producers.producers), default=-1)


def _topic_image(node: BrokerId, found: TopicImage, logs: Logs) -> TopicImage:
    if not found.partition_count:
        raise UnreadableMetadata(
            f"topic {found.name} has no partitions in the metadata of Kafka. See docs/from-kafka.md"
        )
    partitions = [
        _partition_image(node, each, logs.get(TopicPartition(found.name, each.partition)))
        for each in found.partitions
    ]
    return TopicImage(found.name, found.topic_id, partitions)


def _partition_image(
    node: BrokerId, found: PartitionImage, log: UnifiedLog | None
) -> PartitionImage:
    """Return the partition with this broker's replica as the only one, as there is no other broker.

    Its leader epoch is not below the epoch of any batch in the log.
    """
    epoch = max(found.leader_epoch, log.latest_epoch if log is not None else 0, 0)
    if node in found.replicas:
        image = new_partition(found.partition, (node,))
        return replace(image, leader_epoch=epoch)
    elsewhere = found.replicas
    return PartitionImage(found.partition, NO_LEADER, epoch, 0, elsewhere, elsewhere)


def _features(found: Mapping[str, int]) -> dict[str, int]:
    """Return Kafka's levels as far as they are supported. Features that were off stay off."""
    if not found:
        return default_levels()
    levels = {}
    for name, level in sorted(found.items()):
        feature = FEATURES.get(name)
        if feature is None:
            _logger.info("not imported: feature %s, level %d", name, level)
            continue
        levels[name] = min(max(level, feature.min_level), feature.max_level)
        if levels[name] != level:
            _logger.info("feature %s has level %d now, not %d", name, levels[name], level)
    return levels


def _quotas(found: Quotas) -> Quotas:
    quotas: Quotas = {}
    for entity, values in found.items():
        for key, value in sorted(values.items()):
            alteration = QuotaAlteration(entity, [(key, value)])
            quotas, results = plan_alterations(quotas, [alteration])
            if (error := results[entity]) is not None:
                _logger.warning(
                    "not imported: quota %s of %s: %s. `odradek quota set` sets another value",
                    key,
                    entity,
                    error.message,
                )
    return quotas


def _with_configs(
    image: MetadataImage, config: BrokerConfig, found: ImportedCluster
) -> MetadataImage:
    for topic, values in found.image.topic_configs.items():
        configs = _accepted(image, config, ResourceType.TOPIC, topic, values)
        image = image.with_configs({topic: configs}, {})
    for name, values in found.image.broker_configs.items():
        if name not in ("", str(config.node_id)):
            for key in sorted(values):
                _logger.warning("not imported: config %s of broker %s, which is another", key, name)
            continue
        image = image.with_configs(
            {}, {name: _accepted(image, config, ResourceType.BROKER, name, values)}
        )
    metrics = {
        name: _accepted(image, config, ResourceType.CLIENT_METRICS, name, values)
        for name, values in found.image.client_metrics.items()
    }
    groups = {
        name: _accepted(image, config, ResourceType.GROUP, name, values)
        for name, values in found.image.group_configs.items()
    }
    return image.with_configs({}, {}, groups, metrics)


def _accepted(
    image: MetadataImage,
    config: BrokerConfig,
    kind: ResourceType,
    name: str,
    values: Mapping[str, str],
) -> dict[str, str]:
    """Return the configs of a resource that are valid here. Log the names of the others.

    Their values are not logged, because they may be secret.
    """
    ops = [ConfigOp(key, OpType.SET, value) for key, value in sorted(values.items())]
    try:
        return plan_change(image, config, ConfigChange(kind, name, ops))
    except KafkaError:
        pass
    accepted: list[ConfigOp] = []
    configs: dict[str, str] = {}
    for op in ops:
        try:
            configs = plan_change(image, config, ConfigChange(kind, name, [*accepted, op]))
        except KafkaError:
            _logger.warning(
                "not imported: config %s of %s %s, which Odradek does not accept. `odradek config "
                "alter` sets another value",
                op.name,
                kind.name.lower(),
                name or "default",
            )
            continue
        accepted.append(op)
    return configs


# --- without Kafka's metadata ---


def _from_directories(
    config: BrokerConfig, logs: Logs, new_uuid: Callable[[], Uuid]
) -> ImportedCluster:
    """Return the topics of the partitions found, with the id in their ``partition.metadata``."""
    node = BrokerId(config.node_id)
    topics: dict[TopicName, TopicImage] = {}
    configs: dict[TopicName, dict[str, str]] = {}
    for name in sorted({TopicName(partition.topic) for partition in logs}):
        found = {tp.partition: log for tp, log in logs.items() if tp.topic == name}
        topic_id = _common_id(name, found) or new_uuid()
        epochs = [found[n].latest_epoch if n in found else 0 for n in range(max(found) + 1)]
        topics[name] = TopicImage(
            name,
            topic_id,
            [PartitionImage(n, node, epoch, 0, (node,), (node,)) for n, epoch in enumerate(epochs)],
        )
        own = internal_topic(config, name)
        if own is not None:
            configs[name] = {key: value for key, value in own.configs if value is not None}
    used = _highest_producer_id(logs)
    # The newest block may have been allocated although no log has an id of it.
    size = znodes.PRODUCER_ID_BLOCK_SIZE
    image = MetadataImage(next_producer_id=(used // size + 2) * size)
    return ImportedCluster(image.with_topics(topics, configs))


def _of_several(logs: Iterable[UnifiedLog]) -> TopicPartition:
    """Return the first partition that has more than one log."""
    counts = Counter(log.topic_partition for log in logs)
    return min(key for key, count in counts.items() if count > 1)


def _common_id(name: str, logs: Mapping[int, UnifiedLog]) -> Uuid | None:
    ids = {log.topic_id for log in logs.values() if log.topic_id is not None}
    if len(ids) > 1:
        numbers = ", ".join(map(str, sorted(logs)))
        raise UnreadableMetadata(
            f"the directories of topic {name} (partitions {numbers}) have different topic ids. "
            "Move the directories of the wrong topic to another place"
        )
    return ids.pop() if ids else None


# --- logging ---


def _report(image: MetadataImage, found: ImportedCluster) -> None:
    configs = (
        *image.topic_configs.values(),
        *image.broker_configs.values(),
        *image.group_configs.values(),
        *image.client_metrics.values(),
    )
    partitions = [p for topic in image.topics_by_name.values() for p in topic.partitions]
    _logger.info(
        "cluster %s: imported %d topics with %d partitions, %d configs, quotas of %d entities",
        image.cluster_id,
        len(image.topics_by_name),
        len(partitions),
        sum(map(len, configs)),
        len(image.client_quotas),
    )
    if away := sum(partition.leader == NO_LEADER for partition in partitions):
        _logger.warning(
            "%d partitions have no replica on this node, and therefore no leader. Clients cannot "
            "use them. See docs/from-kafka.md",
            away,
        )
    for what, count in sorted(found.unused.items()):
        if count > 0:
            _logger.warning("not imported: %d %s. See docs/from-kafka.md", count, what)
