"""Tests of the records and results of requests to the controller."""

from __future__ import annotations

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller import plans
from odradek.controller.plan import planning_single_broker
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.features import FeatureUpdate
from odradek.metadata.image import NO_LEADER, BrokerRegistration, MetadataImage, Overrides
from odradek.metadata.records import MetadataRecord
from odradek.metadata.resources import ResourceType
from odradek.metadata.topic_changes import CreatedTopic, NewPartitions, NewTopic
from odradek.metadata.znodes import PRODUCER_ID_BLOCK_SIZE
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.producer_ids_record import ProducerIdsRecord
from odradek.protocol.messages.remove_topic_record import RemoveTopicRecord
from odradek.protocol.messages.topic_deletion_record import TopicDeletionRecord
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion
from tests.controller.test_large_changes import counted

CONFIG = BrokerConfig({"node.id": "1"})
ONE, TWO = BrokerId(1), BrokerId(2)
AT = MetadataProvenance(ONE, 1, 1)


def _applied(image: MetadataImage, records: list[MetadataRecord]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(AT)


def _brokers() -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for broker in (ONE, TWO):
        delta.register(BrokerRegistration(broker, "host", 9092, epoch=10 * broker))
    return delta.apply(AT)


def _created(image: MetadataImage, *topics: NewTopic) -> MetadataImage:
    first = len(image.topics_by_id) + 1
    ids = iter(Uuid(bytes([number]) * 16) for number in range(first, 255))
    planning = plans.planning_topics(image, CONFIG, topics, lambda: next(ids))
    plan = run_to_completion(planning)
    assert all(isinstance(each, CreatedTopic) for each in plan.result)
    return _applied(image, plan.records)


def _codes(results: list[KafkaError | None]) -> list[ErrorCode]:
    return [ErrorCode.NONE if error is None else error.code for error in results]


def test_valid_topics_of_a_request_are_created_with_their_configs_first() -> None:
    image = _created(_brokers(), NewTopic("a", 1, 1))
    configs = (("retention.ms", "9"),)
    topics = [NewTopic("a", 1, 1), NewTopic("b", 2, 2, configs=configs), NewTopic("c", 1, 9)]
    planning = plans.planning_topics(image, CONFIG, topics, lambda: Uuid(b"b" * 16))
    plan = run_to_completion(planning)
    codes = [each.code if isinstance(each, KafkaError) else ErrorCode.NONE for each in plan.result]
    assert codes == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ]
    names = [type(each).__name__ for each in plan.records]
    assert names == ["TopicRecord", "ConfigRecord", "PartitionRecord", "PartitionRecord"]
    assert _applied(image, plan.records).topic_configs[TopicName("b")] == dict(configs)


def test_each_topic_is_deleted_once() -> None:
    image = _created(_brokers(), NewTopic("a", 1, 1), NewTopic("b", 1, 1))
    a, b = (image.topics_by_name[TopicName(name)].topic_id for name in "ab")
    unknown = Uuid(b"x" * 16)
    plan = run_to_completion(plans.planning_topic_deletions(image, [b, unknown, b, a]))
    assert _codes(plan.result) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NONE,
    ]
    assert plan.records == [RemoveTopicRecord(b), RemoveTopicRecord(a)]
    ids = [unknown] * (2 * ELEMENTS_PER_SLICE)
    assert counted(plans.planning_topic_deletions(image, ids))[0] == 2


def test_partitions_of_a_refused_request_are_not_added() -> None:
    image = _created(_brokers(), NewTopic("a", 1, 1), NewTopic("b", 2, 1), NewTopic("c", 1, 1))
    requests = [NewPartitions("a", 3), NewPartitions("x", 3), NewPartitions("b", 2)]
    requests.append(NewPartitions("c", 2))
    plan = run_to_completion(plans.planning_partitions(image, requests))
    assert _codes(plan.result) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NONE,
    ]
    after = _applied(image, plan.records)
    counts = [after.topics_by_name[TopicName(name)].partition_count for name in "abc"]
    assert counts == [3, 2, 2]


def test_config_change_that_the_check_refuses_is_not_planned() -> None:
    image = _created(_brokers(), NewTopic("a", 1, 1))
    seen: list[tuple[Overrides, Overrides]] = []

    def check(change: ConfigChange, before: Overrides, after: Overrides) -> None:
        seen.append((before, after))
        if change.ops[0].value == "7":
            raise KafkaError(ErrorCode.INVALID_CONFIG, "seven")

    changes = [
        ConfigChange(kind, name, (ConfigOp("retention.ms", OpType.SET, value),))
        for kind, name, value in (
            (ResourceType.TOPIC, "a", "7"),
            (ResourceType.TOPIC, "x", "8"),
            (ResourceType.TOPIC, "a", "9"),
        )
    ]
    plan = run_to_completion(plans.planning_config_changes(image, CONFIG, changes, check))
    assert _codes(plan.result) == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert [(dict(before), dict(after)) for before, after in seen] == [
        ({}, {"retention.ms": "7"}),
        ({}, {"retention.ms": "9"}),
    ]
    assert _applied(image, plan.records).topic_configs[TopicName("a")] == {"retention.ms": "9"}


def test_config_changes_of_many_operations_are_planned_in_time_slices() -> None:
    ops = (ConfigOp("retention.ms", OpType.SET, "9"),) * (ELEMENTS_PER_SLICE // 2)
    changes = [ConfigChange(ResourceType.TOPIC, "x", ops)] * 8
    assert counted(plans.planning_config_changes(_brokers(), CONFIG, changes))[0] == 4


def test_features_have_records_for_the_levels_that_change() -> None:
    image = _brokers()
    plan = plans.plan_features(image, CONFIG, {"group.version": 1, "transaction.version": 0})
    assert (plan.result, plan.records) == (None, [FeatureLevelRecord("group.version", 1)])
    image = _applied(image, plan.records)
    assert not plans.plan_features(image, CONFIG, {"group.version": 1}).records
    off = plans.plan_features(image, CONFIG, {"group.version": 0})
    assert off.records == [FeatureLevelRecord("group.version", 0)]
    refused = plans.plan_features(image, CONFIG, [FeatureUpdate("unknown", 1)])
    assert isinstance(refused.result, KafkaError)
    assert not refused.records


@pytest.mark.parametrize(("broker", "epoch"), [(TWO, 20), (BrokerId(9), -1)])
def test_blocks_of_producer_ids_follow_each_other(broker: BrokerId, epoch: int) -> None:
    image = _brokers()
    first = image.next_producer_id
    for number in range(2):
        plan = plans.plan_producer_ids(image, broker)
        begin = first + number * PRODUCER_ID_BLOCK_SIZE
        assert plan.result == range(begin, begin + PRODUCER_ID_BLOCK_SIZE)
        assert plan.records == [ProducerIdsRecord(broker, epoch, plan.result.stop)]
        image = _applied(image, plan.records)


def test_deletion_is_finished_by_its_last_broker() -> None:
    image = _created(_brokers(), NewTopic("a", 1, 2))
    topic_id = image.topics_by_name[TopicName("a")].topic_id
    image = _applied(image, [RemoveTopicRecord(topic_id)])
    assert image.deletions[topic_id].brokers == (ONE, TWO)
    for broker in (BrokerId(3), ONE):
        plan = plans.plan_deletions_finished(image, broker, [topic_id, Uuid(b"x" * 16)])
        image = _applied(image, plan.records)
    assert image.deletions[topic_id].brokers == (TWO,)
    assert not plans.plan_deletions_finished(image, ONE, [topic_id]).records
    image = _applied(image, plans.plan_deletions_finished(image, TWO, [topic_id]).records)
    assert topic_id not in image.deletions


# --- the start of a single broker ---


def test_single_broker_leads_its_partitions_in_new_epochs_and_ends_all_others() -> None:
    image = _created(_brokers(), NewTopic("a", assignments=[(0, [1]), (1, [2])]))
    image = _created(image, NewTopic("b", assignments=[(0, [1, 2])]))
    deleted = image.topics_by_name[TopicName("b")].topic_id
    image = _applied(image, [RemoveTopicRecord(deleted)])
    registered = image.brokers[ONE]
    plan = run_to_completion(planning_single_broker(image, registered))
    after = _applied(image, plan.records)
    assert list(after.brokers) == [ONE]
    before = image.topics_by_name[TopicName("a")].partitions
    led, other = after.topics_by_name[TopicName("a")].partitions
    assert (led.leader, led.isr, led.leader_epoch) == (ONE, (ONE,), before[0].leader_epoch + 1)
    assert (other.leader, other.leader_epoch) == (NO_LEADER, before[1].leader_epoch + 1)
    assert after.deletions[deleted].brokers == (ONE,)
    again = run_to_completion(planning_single_broker(after, registered)).records
    assert not any(isinstance(each, TopicDeletionRecord) for each in again)
