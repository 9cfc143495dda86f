"""Plans: the records that a request to the controller causes. Pure.

A plan takes the newest image and a request, and returns records and the results of the request. It
changes nothing. The controller replays the records on the image (`MetadataDelta`), writes the nodes
that follow (`store_operations`), and publishes. A request that is refused in part has records for
the other part. Long plans are generators, which end time slices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain

from odradek.config.broker import BrokerConfig
from odradek.controller.placement import placing_partitions, placing_topics
from odradek.controller.plan import Plan, Planning
from odradek.controller.replica_placer import Between
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, Uuid
from odradek.metadata import record_classes
from odradek.metadata.config_changes import ConfigChange, plan_config_change
from odradek.metadata.features import FeatureUpdate, check_update, with_levels
from odradek.metadata.image import (
    MetadataImage,
    Overrides,
    TopicDeletion,
)
from odradek.metadata.image_records import (
    config_records,
    deletion_record,
    partition_record,
    quota_records,
)
from odradek.metadata.quotas import Entity, QuotaAlteration, planning_alterations
from odradek.metadata.resources import ResourceType
from odradek.metadata.topic_changes import CreatedTopic, NewPartitions, NewTopic
from odradek.metadata.topics import check_change_count, config_elements
from odradek.metadata.znodes import PRODUCER_ID_BLOCK_SIZE
from odradek.slicing import ELEMENTS_PER_SLICE

_NO_RATES: Mapping[str, float] = {}


def planning_topics(
    image: MetadataImage,
    config: BrokerConfig,
    topics: Sequence[NewTopic],
    new_uuid: Callable[[], Uuid],
    between: Between = min,
) -> Planning[list[CreatedTopic | KafkaError]]:
    """Plan the creation of the valid topics of a request. `between` is as for `placing_topics`."""
    plan = Plan((yield from placing_topics(image, config, topics, new_uuid, between)))
    left = ELEMENTS_PER_SLICE
    for created in plan.result:
        if isinstance(created, KafkaError):
            continue
        topic = created.image
        # Configs come first. If the write is divided, no partition exists without them.
        plan.records.append(record_classes.TopicRecord(topic.name, topic.topic_id))
        plan.records += config_records(ResourceType.TOPIC, topic.name, {}, created.configs)
        for partition in topic.partitions:
            plan.records.append(partition_record(topic.topic_id, partition))
            left -= 1
            if not left:
                left = ELEMENTS_PER_SLICE
                yield
    return plan


def planning_topic_deletions(
    image: MetadataImage, ids: Sequence[Uuid]
) -> Planning[list[KafkaError | None]]:
    """Plan the deletion of topics by id. An id that occurs again is unknown."""
    plan: Plan[list[KafkaError | None]] = Plan([])
    seen: set[Uuid] = set()
    for count, topic_id in enumerate(ids, 1):
        if not count % ELEMENTS_PER_SLICE:
            yield
        if topic_id in seen or topic_id not in image.topics_by_id:
            text = "This server does not host this topic ID."
            plan.result.append(KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, text))
            continue
        seen.add(topic_id)
        plan.records.append(record_classes.RemoveTopicRecord(topic_id))
        plan.result.append(None)
    return plan


def planning_partitions(
    image: MetadataImage, requests: Sequence[NewPartitions], between: Between = min
) -> Planning[list[KafkaError | None]]:
    """Plan additional partitions."""
    plan: Plan[list[KafkaError | None]] = Plan([])
    left = ELEMENTS_PER_SLICE
    for request in requests:
        try:
            topic = yield from placing_partitions(image, request, between)
        except KafkaError as error:
            plan.result.append(error.with_traceback(None))
            continue
        present = image.topics_by_id[topic.topic_id].partition_count
        for number in range(present, topic.partition_count):
            plan.records.append(partition_record(topic.topic_id, topic.partitions[number]))
            left -= 1
            if not left:
                left = ELEMENTS_PER_SLICE
                yield
        plan.result.append(None)
    return plan


def planning_config_changes(
    image: MetadataImage,
    config: BrokerConfig,
    changes: Sequence[ConfigChange],
    check: Callable[[ConfigChange, Overrides, Overrides], None] = lambda *_: None,
) -> Planning[list[KafkaError | None]]:
    """Plan changes of configs of any resources.

    `check` raises KafkaError if it refuses a change with its overrides before and after.
    """
    plan: Plan[list[KafkaError | None]] = Plan([])
    left = ELEMENTS_PER_SLICE
    for change in changes:
        before = change.configs(image)
        left -= 1 + len(change.ops)
        left -= config_elements(chain((op.value for op in change.ops), before.values()))
        if left <= 0:
            left = ELEMENTS_PER_SLICE
            yield
        try:
            check_change_count(len(changes))
            configs = plan_config_change(image, config, change)
            check(change, before, configs)
        except KafkaError as error:
            plan.result.append(error.with_traceback(None))
            continue
        plan.records += config_records(change.type, change.name, before, configs)
        plan.result.append(None)
    return plan


def planning_quotas(
    image: MetadataImage, alterations: Sequence[QuotaAlteration]
) -> Planning[dict[Entity, KafkaError | None]]:
    """Plan changes of client quotas."""
    changed, results = yield from planning_alterations(image.client_quotas, alterations)
    plan = Plan(results)
    for entity, quotas in changed.items():
        before = image.client_quotas.get(entity, _NO_RATES)
        plan.records += quota_records(entity, before, quotas)
    return plan


def plan_features(
    image: MetadataImage,
    config: BrokerConfig,
    changes: Mapping[str, int] | Sequence[FeatureUpdate],
) -> Plan[KafkaError | None]:
    """Plan levels of features. A mapping sets levels in either direction."""
    before = image.features
    try:
        if not isinstance(changes, Mapping):
            for update in changes:
                check_update(config.node_id, before, update)
            changes = {update.name: update.level for update in changes}
        levels = with_levels(before, changes)
    except KafkaError as error:
        return Plan(error)
    plan: Plan[KafkaError | None] = Plan(None)
    for name in changes:
        if levels.get(name, 0) != before.get(name, 0):
            plan.records.append(record_classes.FeatureLevelRecord(name, levels.get(name, 0)))
    return plan


def plan_producer_ids(image: MetadataImage, broker: BrokerId) -> Plan[range]:
    """Plan the next block of producer ids for a broker."""
    first = image.next_producer_id
    block = range(first, first + PRODUCER_ID_BLOCK_SIZE)
    registration = image.brokers.get(broker)
    epoch = -1 if registration is None else registration.epoch
    return Plan(block, [record_classes.ProducerIdsRecord(broker, epoch, block.stop)])


def plan_deletions_finished(
    image: MetadataImage, broker: BrokerId, topic_ids: Collection[Uuid]
) -> Plan[None]:
    """Plan that a broker has removed its logs of deleted topics."""
    plan: Plan[None] = Plan(None)
    for topic_id in topic_ids:
        deletion = image.deletions.get(topic_id)
        if deletion is not None and broker in deletion.brokers:
            left = tuple(each for each in deletion.brokers if each != broker)
            plan.records.append(deletion_record(topic_id, TopicDeletion(deletion.name, left)))
    return plan
