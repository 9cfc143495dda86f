"""Valid names of topics, and decisions on requests to create topics, with Kafka's messages."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.placement import placing_partitions, placing_topics
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.topic_changes import CreatedTopic, NewPartitions, NewTopic
from odradek.metadata.topics import CHANGES_PER_REQUEST_MAX, invalid_name_reason
from odradek.slicing import run_to_completion
from tests.helpers.call_count import count_calls

TOPIC_ID = Uuid(b"0123456789abcdef")


def planned(made: MetadataImage, topic: NewTopic, **config: object) -> CreatedTopic:
    properties = {name.replace("_", "."): value for name, value in config.items()}
    planning = placing_topics(made, BrokerConfig(properties), [topic], lambda: TOPIC_ID)
    (result,) = run_to_completion(planning)
    if isinstance(result, KafkaError):
        raise result
    return result


def image(*brokers: int, topics: tuple[str, ...] = ()) -> MetadataImage:
    ids = [BrokerId(number) for number in brokers or (1,)]
    made = MetadataImage(
        brokers=PersistentMap({it: BrokerRegistration(it, "host", 9092) for it in ids})
    )
    for name in topics:
        created = planned(made, NewTopic(name, 2, 1))
        made = made.with_topics({created.image.name: created.image}, {})
    return made


def refused(
    topic: NewTopic, made: MetadataImage | None = None, **config: object
) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as caught:
        planned(made or image(), topic, **config)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize("name", ["a", "A-1.b_c", "x" * 249, "__consumer_offsets", "..."])
def test_legal_names(name: str) -> None:
    assert invalid_name_reason(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "longer than the max allowed length 249"),
        ("a b", "other than ASCII alphanumerics"),
        ("a/b", "other than ASCII alphanumerics"),
        ("é", "other than ASCII alphanumerics"),
        ("a\n", "other than ASCII alphanumerics"),
    ],
)
def test_illegal_names(name: str, reason: str) -> None:
    code, message = refused(NewTopic(name))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert message.startswith("Topic name is invalid: ")
    assert reason in message


@pytest.mark.parametrize(("name", "other"), [("a.b", "a_b"), ("a_b.c", "a.b_c")])
def test_names_that_differ_in_dots_and_underscores_collide(name: str, other: str) -> None:
    code, message = refused(NewTopic(name), image(topics=(other,)))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert message == f"Topic '{name}' collides with existing topic: {other}"


def test_topic_that_exists_is_refused() -> None:
    assert refused(NewTopic("t"), image(topics=("t",))) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 't' already exists.",
    )


def test_minus_one_is_replaced_by_the_brokers_defaults() -> None:
    created = planned(
        image(1, 2), NewTopic("t"), num_partitions="4", default_replication_factor="2"
    )
    replicas = [p.replicas for p in created.image.partitions]
    assert sorted(replicas) == [(1, 2), (1, 2), (2, 1), (2, 1)]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", CHANGES_PER_REQUEST_MAX + 1, 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 2**31 - 1, 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", configs=[("nope", "1")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("retention.ms", "x")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("remote.storage.enable", "true")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [7])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_invalid_new_topic_has_kafkas_error_code(topic: NewTopic, code: ErrorCode) -> None:
    assert refused(topic)[0] is code


def test_replication_factor_above_the_brokers_is_refused_with_kafkas_message() -> None:
    assert refused(NewTopic("t"), default_replication_factor=3) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot "
        "be reached because only 1 broker(s) are registered.",
    )


def test_compaction_lags_must_agree() -> None:
    configs = [("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")]
    code, message = refused(NewTopic("t", configs=configs))
    assert code is ErrorCode.INVALID_CONFIG
    assert "min.compaction.lag.ms (9) > max.compaction.lag.ms (8)" in message


def codes(topics: list[NewTopic]) -> list[ErrorCode | None]:
    results = run_to_completion(placing_topics(image(), BrokerConfig({}), topics, lambda: TOPIC_ID))
    return [result.code if isinstance(result, KafkaError) else None for result in results]


def test_topics_of_one_request_must_not_collide_either() -> None:
    assert codes([NewTopic("a.b"), NewTopic("a_b"), NewTopic("a.b")]) == [
        None,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]


def test_changes_of_one_request_are_bounded_in_all() -> None:
    half = CHANGES_PER_REQUEST_MAX // 2
    assert codes([NewTopic("a", half), NewTopic("b", half), NewTopic("c")]) == [
        None,
        ErrorCode.POLICY_VIOLATION,
        None,
    ]
    many = [NewTopic(f"t{number}") for number in range(CHANGES_PER_REQUEST_MAX + 1)]
    assert set(codes(many)) == {ErrorCode.POLICY_VIOLATION}


def test_manual_assignment_is_kept() -> None:
    assignments = [(1, [2, 1]), (0, [1, 2])]
    topic = NewTopic("t", assignments=assignments)
    created = planned(image(1, 2), topic)
    assert [p.replicas for p in created.image.partitions] == [(1, 2), (2, 1)]
    assert [p.leader for p in created.image.partitions] == [1, 2]


def test_manual_assignments_must_have_equal_sizes() -> None:
    topic = NewTopic("t", assignments=[(0, [1]), (1, [1, 2])])
    assert refused(topic, image(1, 2))[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (NewPartitions("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (NewPartitions("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (NewPartitions("t", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewPartitions("t", 3, [[5]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added(request_: NewPartitions, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        run_to_completion(placing_partitions(image(1, 2, topics=("t",)), request_))
    assert caught.value.code is code


def test_added_partitions_follow_the_existing_ones() -> None:
    before = image(topics=("t",)).topics_by_name
    planning = placing_partitions(image(topics=("t",)), NewPartitions("t", 4, [[1], [1]]))
    made = run_to_completion(planning)
    (old,) = before.values()
    assert made.topic_id == old.topic_id
    assert made.partitions[:2] == old.partitions
    assert [p.partition for p in made.partitions] == [0, 1, 2, 3]


def test_a_topic_is_created_beside_many_as_cheaply_as_beside_few() -> None:
    few = image()
    many = few.with_topics(
        {
            name: TopicImage(name, Uuid(number.to_bytes(16, "big")), [])
            for number, name in ((each, TopicName(f"t{each}")) for each in range(1, 3_000))
        },
        {},
    )
    new = NewTopic("new", 2, 1)
    planned(few, new)
    calls = count_calls(lambda: planned(few, new)).total
    assert count_calls(lambda: planned(many, new)).total <= calls + 5


def test_names_of_one_request_collide_with_each_other() -> None:
    topics = [NewTopic(name) for name in ("a.b", "a_b", "c_d", "c.d", "a.b")]
    planning = placing_topics(image(topics=("c-d",)), BrokerConfig({}), topics, lambda: TOPIC_ID)
    results = run_to_completion(planning)
    codes = [each.code if isinstance(each, KafkaError) else None for each in results]
    collision = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes == [None, collision, None, collision, ErrorCode.TOPIC_ALREADY_EXISTS]


def _inactive(made: MetadataImage, number: int, **state: bool) -> MetadataImage:
    broker = BrokerId(number)
    changed = replace(made.brokers[broker], **state)
    return replace(made, brokers=made.brokers.with_changes({broker: changed}))


@pytest.mark.parametrize("state", ["fenced", "in_controlled_shutdown"])
def test_manual_assignment_needs_a_broker_that_can_lead(state: str) -> None:
    made = _inactive(image(1, 2, topics=("t",)), 1, **{state: True})
    text = (
        "All brokers specified in the manual partition assignment for partition {} are fenced or "
        "in controlled shutdown."
    )
    new = NewTopic("a", assignments=[(0, [2]), (1, [1])])
    assert refused(new, made) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, text.format(1))
    with pytest.raises(KafkaError) as caught:
        run_to_completion(placing_partitions(made, NewPartitions("t", 4, [[2], [1]])))
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert caught.value.message == text.format(3)
    assert planned(made, NewTopic("a", assignments=[(0, [1, 2])])).image.partition_count == 1


def test_broker_in_controlled_shutdown_gets_no_new_replica() -> None:
    made = _inactive(image(1, 2, 3), 2, in_controlled_shutdown=True)
    created = planned(made, NewTopic("a", 6, 2))
    assert {each for partition in created.image.partitions for each in partition.replicas} == {1, 3}
    code, message = refused(NewTopic("a", 1, 3), made)
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 2 broker(s)" in message


def test_refused_topics_are_in_no_reference_cycle() -> None:
    """A request may have 10,000, and the collector of a broker frees few cycles."""
    topics = [NewTopic("..", 1, 1)]
    planning = placing_topics(image(), BrokerConfig({}), topics, lambda: TOPIC_ID)
    results = run_to_completion(planning)
    error = weakref.ref(results[0])
    gc.disable()
    try:
        del planning, results
        assert error() is None
    finally:
        gc.enable()
