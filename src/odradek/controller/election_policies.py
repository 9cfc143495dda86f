"""The configs that decide elections, and the rules that keep ``min.insync.replicas`` safe. Pure.

The controller fills the ELR of a partition while its ISR is below the minimum, because the leader
does not advance the high watermark then (rule R5). Both therefore need the same minimum at the same
metadata offset (rule E4). Three rules follow, which are Kafka's with eligible leader replicas:

* The minimum of a cluster is in its metadata: the default of all brokers, and the topics' own. A
  cluster without a default takes the one from the file of its controller. A broker has no minimum
  of its own: an existing one is removed (``maybeGenerateElrSafetyRecords`` of Kafka's
  ``ConfigurationControlManager``), and a change or removal of one is refused.
* The controller reads the minimum from the image that it changes, not from the configs of its
  broker, which follow later.
* A change that lowers a minimum clears the ELR of the partitions that reach it in the same write.
  A leader with the lower minimum commits records that a member of the ELR lacks. Kafka clears the
  ELR of all partitions of the topic, also when the minimum rises (``ClearElrRecord``). A partition
  that stays below its minimum keeps it here, because its high watermark still stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from odradek.config.broker import BrokerConfig
from odradek.controller.broker_changes import ELECTION_COST, Policies, acceptable_leader
from odradek.controller.election import ElectionPolicy, min_isr_changed
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName
from odradek.metadata.config_changes import ConfigChange
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import MetadataImage, Overrides, TopicImage
from odradek.metadata.image_records import partition_change
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.records import MetadataRecord
from odradek.metadata.resources import ResourceType
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.slicing import ELEMENTS_PER_SLICE

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
ALL_BROKERS = ""
"""The name of the broker configs that apply to all brokers."""

_NO_OVERRIDES: Overrides = {}


class ElectionPolicies:
    """The policies of images, from the configs of the controller's broker and those of the image.

    The configs are parsed again only when the broker configs of the image have changed.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._parsed_for: PersistentMap[str, Overrides] | None = None
        self._parsed = config

    def of(self, image: MetadataImage) -> Policies:
        """Return a function that returns what decides the elections of a topic's partitions.

        It parses each combination of values once.
        """
        config = self._config_of(image)
        avoided = frozenset(broker for broker, each in image.brokers.items() if each.drained)
        default = _policy(config, _NO_OVERRIDES, avoided)
        topic_configs = image.topic_configs
        parsed: dict[tuple[str | None, str | None], ElectionPolicy] = {(None, None): default}

        def policy(name: TopicName) -> ElectionPolicy:
            overrides = topic_configs.get(name)
            if overrides is None:
                return default
            decisive = overrides.get(MIN_ISR), overrides.get(UNCLEAN)
            found = parsed.get(decisive)
            if found is None:
                found = parsed[decisive] = _policy(config, overrides, avoided)
            return found

        return policy

    def _config_of(self, image: MetadataImage) -> BrokerConfig:
        if image.broker_configs is not self._parsed_for:
            own = dict(image.broker_configs.get(str(self._config.node_id)) or _NO_OVERRIDES)
            own.pop(MIN_ISR, None)
            cluster = image.broker_configs.get(ALL_BROKERS) or _NO_OVERRIDES
            self._parsed = self._config.with_dynamic({}, {})
            self._parsed.set_valid_dynamic(own, cluster)
            self._parsed_for = image.broker_configs
        return self._parsed

    def safety_records(self, image: MetadataImage) -> list[MetadataRecord]:
        """Return the records that put the minimum of the cluster into its metadata."""
        records: list[MetadataRecord] = []
        if MIN_ISR not in (image.broker_configs.get(ALL_BROKERS) or _NO_OVERRIDES):
            minimum = str(self._config.with_dynamic({}, {}).get_int(MIN_ISR))
            records.append(ConfigRecord(int(ResourceType.BROKER), ALL_BROKERS, MIN_ISR, minimum))
        for name, overrides in image.broker_configs.items():
            if name != ALL_BROKERS and MIN_ISR in overrides:
                records.append(ConfigRecord(int(ResourceType.BROKER), name, MIN_ISR, None))
        return records


def _policy(
    config: BrokerConfig, overrides: Overrides, avoided: frozenset[BrokerId]
) -> ElectionPolicy:
    log_config = config.log_config(overrides)
    return ElectionPolicy(
        log_config.min_insync_replicas, log_config.unclean_leader_election_enable, avoided=avoided
    )


def check_min_isr(change: ConfigChange, before: Overrides, after: Overrides) -> None:
    """Refuse to change a broker's own minimum, and to remove the minimum of all brokers.

    An operation that changes nothing is refused as well, as in Kafka.

    Raises:
        KafkaError: INVALID_CONFIG.
    """
    if change.type is not ResourceType.BROKER:
        return
    is_named = any(op.name == MIN_ISR for op in change.ops)
    if not is_named and before.get(MIN_ISR) == after.get(MIN_ISR):
        return
    if change.name == ALL_BROKERS:
        if MIN_ISR not in after:
            text = f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    else:
        text = f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def planning_min_isr(
    image: MetadataImage,
    records: Sequence[MetadataRecord],
    policies: Callable[[MetadataImage], Policies],
) -> Generator[None, None, list[MetadataRecord]]:
    """Return the changes of partitions that follow from records of configs.

    They come before the records of the configs if the write has to be divided: a partition without
    an ELR is safe with either minimum.
    """
    topics = _topics_with_another_minimum(image, records)
    if not topics:
        return []
    delta = MetadataDelta(image)
    yield from delta.replaying(records)
    provenance = MetadataProvenance(image.controller_id, image.controller_epoch, image.offset)
    after = yield from delta.applying(provenance)
    policy_of = policies(after)
    changes: list[MetadataRecord] = []
    left = ELEMENTS_PER_SLICE
    for topic in topics:
        for partition in topic.partitions:
            left -= 1
            if not left:
                left = ELEMENTS_PER_SLICE
                yield
            if not partition.elr:
                continue
            left = max(1, left - ELECTION_COST)
            acceptable = acceptable_leader(image.brokers, partition)
            changed = min_isr_changed(partition, acceptable, policy_of(topic.name))
            record = partition_change(topic.topic_id, partition, changed or partition)
            if record is not None:
                changes.append(record)
    return changes


def _topics_with_another_minimum(
    image: MetadataImage, records: Sequence[MetadataRecord]
) -> Sequence[TopicImage]:
    names: dict[TopicName, None] = {}
    for record in records:
        if not isinstance(record, ConfigRecord) or record.name != MIN_ISR:
            continue
        if record.resource_type == ResourceType.BROKER:
            return list(image.topics_by_name.values())
        names[TopicName(record.resource_name)] = None
    return [image.topics_by_name[name] for name in names]
