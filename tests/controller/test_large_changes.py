"""Changes of thousands of partitions: time slices, and operations in one write."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller import broker_plans, controller_term, plans
from odradek.controller import plan as plan_module
from odradek.controller.alter_partition import AlterPartition
from odradek.controller.broker_changes import (
    ELECTION_COST,
    BrokerChanges,
    Policies,
    planning_broker_changes,
)
from odradek.controller.election import Election, ElectionPolicy
from odradek.controller.loading import making_whole_topic
from odradek.controller.metadata_writer import OPERATIONS_PER_WRITE_MAX
from odradek.controller.plan import SHORT_STAGE_MAX, Plan
from odradek.controller.store_operations import store_operations
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import LOST_DIRECTORY, BrokerId, TopicName, Uuid
from odradek.metadata import znodes
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.feed_state import ImageTransfer, decoding, replacing
from odradek.metadata.image import BrokerRegistration, MetadataImage, PartitionImage, TopicImage
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.records import MetadataRecord, encode_record
from odradek.metadata.resources import ResourceType
from odradek.metadata.store.interface import Operation, Written
from odradek.metadata.topic_changes import CreatedTopic, NewPartitions, NewTopic
from odradek.metadata.topics import CONFIG_CHARACTERS_AN_ELEMENT
from odradek.slicing import ELEMENTS_PER_SLICE
from tests.controller.test_cluster_controller import SMALL, _create, _stable, running

R = TypeVar("R")
COUNT = 4_000
SLICES = COUNT // ELEMENTS_PER_SLICE
TOPIC_ID = Uuid(b"t" * 16)
AT = MetadataProvenance(BrokerId(1), 1, 1)
BROKERS = PersistentMap(
    {each: BrokerRegistration(each, f"host{each}", 9092) for each in map(BrokerId, (1, 2, 3))}
)
EMPTY = MetadataImage(brokers=BROKERS)


def counted(work: Generator[None, None, R]) -> tuple[int, R]:
    """Run a generator. Return the number of slices that it has ended, and its result."""
    slices = 0
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return slices, ended.value
        slices += 1


def replayed(
    image: MetadataImage, records: Sequence[MetadataRecord]
) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta, delta.apply(AT)


def created(*topics: NewTopic) -> tuple[int, list[MetadataRecord]]:
    ids = iter(Uuid(bytes([number]) * 16) for number in range(1, 255))
    planning = plans.planning_topics(EMPTY, BrokerConfig({}), topics, lambda: next(ids))
    slices, plan = counted(planning)
    assert all(isinstance(each, CreatedTopic) for each in plan.result)
    return slices, plan.records


def test_creation_is_planned_in_time_slices() -> None:
    """The placement, the partitions and the records each have their slices."""
    for topics in (
        [NewTopic("a", COUNT, 3)],
        [NewTopic(f"a{number}", COUNT // 40, 3) for number in range(40)],
        [NewTopic("a", assignments=[(number, [1, 2, 3]) for number in range(COUNT)])],
    ):
        slices, records = created(*topics)
        assert slices >= 2 * SLICES
        assert len(records) == COUNT + len(topics)
        assert counted(broker_plans.with_live_leaders(records, EMPTY, BROKERS))[0] >= SLICES


def test_records_of_a_large_change_are_freed_in_time_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths: list[int] = []
    planned: list[list[MetadataRecord]] = []
    freeing = controller_term._freeing

    def noted(items: list[Any]) -> Generator[None, None, None]:
        for _ in freeing(items):
            lengths.append(len(items))
            yield

    def planning() -> Generator[None, None, list[MetadataRecord]]:
        planned.append(created(NewTopic("a", COUNT, 3))[1])
        yield
        return planned[0]

    with running() as world:
        monkeypatch.setattr(controller_term, "_freeing", noted)
        term = world.controller()._term
        assert term is not None
        world.run(term.commit_planned(planning()))
        assert _stable(world).image.topics_by_name[TopicName("a")].partition_count == COUNT
    assert 0 < len(planned[0]) <= ELEMENTS_PER_SLICE
    assert len(lengths) >= 2 * SLICES, "the records and the operations of the whole change"
    assert not [a for a, b in pairwise(lengths) if b < a - ELEMENTS_PER_SLICE]


def test_large_change_returns_in_the_slice_that_has_published_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next poll of a new broker must find its registration in the registry."""
    polled: list[None] = []

    def planning() -> Generator[None, None, list[MetadataRecord]]:
        yield
        return created(NewTopic("a", COUNT, 3))[1]

    with running() as world:
        term = world.controller()._term
        assert term is not None
        publish = term._publish

        def publishing(delta: MetadataDelta, image: MetadataImage) -> Generator[None, None, None]:
            yield from publish(delta, image)
            polled.clear()
            asyncio.get_running_loop().call_soon(polled.append, None)

        async def commit() -> None:
            await term.commit_planned(planning())
            assert not polled

        monkeypatch.setattr(term, "_publish", publishing)
        world.run(commit())
        assert _stable(world).image.topics_by_name[TopicName("a")].partition_count == COUNT


@pytest.mark.parametrize("count", [SHORT_STAGE_MAX - 1, SHORT_STAGE_MAX])
def test_stages_of_a_change_begin_in_time_slices_of_their_own(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of a topic with `count` partitions has `count` + 1 records."""
    stages: list[str] = []

    async def end_slice() -> None:
        stages.append("slice")
        await asyncio.sleep(0)

    class Delta(MetadataDelta):
        def replaying(
            self, records: Iterable[MetadataRecord | None]
        ) -> Generator[None, None, None]:
            stages.append("replay")
            yield from super().replaying(records)

    def operations(*arguments: Any) -> Generator[None, None, list[Operation]]:
        stages.append("encoding")
        return store_operations(*arguments)

    with running() as world:
        term = world.controller()._term
        assert term is not None
        write = term._writer.write

        async def written(*arguments: Any) -> KafkaError | None:
            stages.append("write")
            return await write(*arguments)

        monkeypatch.setattr(plan_module, "end_slice", end_slice)
        monkeypatch.setattr(controller_term, "MetadataDelta", Delta)
        monkeypatch.setattr(controller_term, "store_operations", operations)
        monkeypatch.setattr(term._writer, "write", written)
        plan = Plan("result", created(NewTopic("a", count, 3))[1])
        assert world.run(term.commit_plan(plan)) == "result"
        assert _stable(world).image.topics_by_name[TopicName("a")].partition_count == count
    if count < SHORT_STAGE_MAX:  # but each partition has two operations
        assert stages == ["replay", "encoding", "slice", "write"]
    else:
        assert stages == ["slice", "replay", "slice", "encoding", "slice", "write"]


def test_parts_of_a_large_change_do_not_keep_the_image_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of the change would free all of its old partitions in one time slice."""
    deltas: weakref.WeakSet[MetadataDelta] = weakref.WeakSet()
    alive: list[int] = []

    class Delta(MetadataDelta):
        def __init__(self, image: MetadataImage) -> None:
            super().__init__(image)
            deltas.add(self)

    with running() as world:
        term = world.controller()._term
        assert term is not None
        write = term._writer.write

        async def written(*arguments: Any) -> KafkaError | None:
            alive.append(len(deltas))
            return await write(*arguments)

        monkeypatch.setattr(controller_term, "MetadataDelta", Delta)
        monkeypatch.setattr(term._writer, "write", written)
        world.run(term.commit_plan(Plan(None, created(NewTopic("a", COUNT, 3))[1])))
    assert len(alive) > 2
    assert set(alive) == {1}, "the delta of the part"


def test_long_config_values_end_time_slices_by_their_length() -> None:
    value = ",".join(f"{number}:1" for number in range(4_000))
    name = "follower.replication.throttled.replicas"
    topics = [NewTopic(f"a{number}", 1, 3, configs=[(name, value)]) for number in range(40)]
    elements = len(topics) * (len(value) // CONFIG_CHARACTERS_AN_ELEMENT)
    slices, records = created(*topics)
    assert slices >= elements // ELEMENTS_PER_SLICE > 1
    _, image = replayed(EMPTY, records)
    changes = [
        ConfigChange(ResourceType.TOPIC, each.name, [ConfigOp(name, OpType.SET, value + ",1:1")])
        for each in topics
    ]
    planning = plans.planning_config_changes(image, BrokerConfig({}), changes)
    slices, plan = counted(planning)
    assert plan.result == [None] * len(topics)
    assert slices >= 2 * elements // ELEMENTS_PER_SLICE, "the old values are read as well"


def test_additional_partitions_are_planned_in_time_slices() -> None:
    _, image = replayed(EMPTY, created(NewTopic("a", 1, 3))[1])
    slices, plan = counted(plans.planning_partitions(image, [NewPartitions("a", COUNT)]))
    assert plan.result == [None]
    assert len(plan.records) == COUNT - 1
    assert slices >= 3 * (SLICES - 1)


def test_operations_of_one_topic_are_made_in_time_slices() -> None:
    _, records = created(NewTopic("a", COUNT, 3))
    delta, image = replayed(EMPTY, records)
    slices, operations = counted(store_operations(delta, image, 1))
    assert slices >= 2 * SLICES
    assert len(operations) >= 2 * COUNT
    (topic,) = image.topics_by_id.values()
    slices, plan = counted(plans.planning_topic_deletions(image, [topic.topic_id]))
    delta, after = replayed(image, plan.records)
    slices, operations = counted(store_operations(delta, after, 1))
    assert slices >= SLICES
    assert len(operations) >= 2 * COUNT


def test_node_of_a_large_topic_is_encoded_and_decoded_in_time_slices() -> None:
    _, image = replayed(EMPTY, created(NewTopic("a", COUNT, 3))[1])
    (topic,) = image.topics_by_id.values()
    slices, data = counted(znodes.encoding_topic(topic))
    assert slices == SLICES
    slices, (topic_id, replicas) = counted(znodes.decoding_topic_header(data))
    assert slices >= 2 * SLICES
    assert [each.replicas for each in replicas] == [each.replicas for each in topic.partitions]
    slices, whole = counted(making_whole_topic(topic.name, topic_id, replicas))
    assert slices == SLICES
    assert whole.partition_count == COUNT


def test_additional_partitions_change_the_node_of_the_topic_in_time_slices() -> None:
    _, image = replayed(EMPTY, created(NewTopic("a", COUNT, 3))[1])
    _, plan = counted(plans.planning_partitions(image, [NewPartitions("a", COUNT + 1)]))
    delta, after = replayed(image, plan.records)
    slices, operations = counted(store_operations(delta, after, 1))
    assert slices == SLICES
    assert len(operations) == 3


def test_elections_are_decided_in_shorter_time_slices_than_visits() -> None:
    _, image = replayed(EMPTY, created(NewTopic("a", COUNT, 3))[1])
    changes = BrokerChanges(after={BrokerId(1): None})
    slices, records = counted(planning_broker_changes(image, changes, lambda _: ElectionPolicy()))
    assert len(records) == COUNT + 1
    assert slices >= SLICES * ELECTION_COST


def test_partitions_that_are_missing_are_found_in_time_slices() -> None:
    _, whole = replayed(EMPTY, created(NewTopic("a", COUNT, 3))[1])
    _, image = replayed(EMPTY, created(NewTopic("a", 1, 3))[1])
    topic = whole.topics_by_name[TopicName("a")]
    missing = broker_plans.missing_partitions([topic], image, BROKERS)
    slices, records = counted(missing)
    assert len(records) == COUNT - 1
    assert slices >= 2 * (SLICES - 1)


def test_metadata_of_the_feed_is_applied_in_time_slices() -> None:
    """A broker decodes its records, and compares a whole image with its own one."""
    records = created(NewTopic("a", COUNT, 3))[1]
    transfer = ImageTransfer("cluster")
    frames = [encode_record(record) for record in records]
    assert counted(decoding(frames, transfer.delta))[0] == SLICES
    assert transfer.delta.records == records
    slices, (delta, _) = counted(replacing(EMPTY, BrokerId(1), transfer))
    assert slices > SLICES
    assert delta.topics.changed


def test_delta_is_released_in_time_slices() -> None:
    delta, image = replayed(EMPTY, created(NewTopic("a", COUNT, 3), NewTopic("b", 1, 1))[1])
    slices, _ = counted(delta.releasing())
    assert slices > SLICES + SLICES // 2
    assert not delta.records
    assert not delta.topics.changed
    assert image.topics_by_name[TopicName("a")].partition_count == COUNT


def test_operations_of_one_write_have_a_limit() -> None:
    with running() as world:
        largest = 0
        for node in world.nodes.values():
            multi = node.store.multi

            async def recorded(
                operations: Sequence[Operation], multi: object = multi
            ) -> list[Written]:
                nonlocal largest
                largest = max(largest, len(operations))
                return await multi(operations)  # type: ignore[operator,no-any-return]

            node.store.multi = recorded  # type: ignore[method-assign]
        count = 2 * OPERATIONS_PER_WRITE_MAX
        (topic,) = world.run(world.controller().create_topics([NewTopic("a", count, 3)]))
        assert isinstance(topic, CreatedTopic)
        assert _stable(world).image.topics_by_name[TopicName("a")].partition_count == count
        assert largest > OPERATIONS_PER_WRITE_MAX // 2
        assert world.run(world.controller().delete_topics([topic.image.topic_id])) == [None]
        assert not _stable(world).image.topics_by_name
        fence_and_position = 2
        assert largest <= OPERATIONS_PER_WRITE_MAX + fence_and_position


def _elections_of_a_slice(work: Callable[[Policies], Generator[None, None, object]]) -> list[int]:
    """Return the number of elections in each time slice of a plan."""
    elections = [0]

    def policy(_: TopicName) -> ElectionPolicy:
        elections[-1] += 1
        return ElectionPolicy(2)

    for _ in work(policy):
        elections.append(0)
    return elections


def _led_by_the_second_replica(count: int) -> MetadataImage:
    partitions = [
        PartitionImage(number, BrokerId(2), 3, 4, tuple(BROKERS), tuple(BROKERS))
        for number in range(count)
    ]
    topic = TopicImage(TopicName("t"), TOPIC_ID, partitions)
    return replace(
        EMPTY,
        topics_by_name=PersistentMap({topic.name: topic}),
        topics_by_id=PersistentMap({topic.topic_id: topic}),
    )


@pytest.mark.parametrize("plan", ["balance", "directories", "requested", "isr"])
def test_elections_of_a_time_slice_are_limited_in_each_plan(plan: str) -> None:
    image = _led_by_the_second_replica(1_000)
    keys = [(TOPIC_ID, number) for number in range(1_000)]
    shrink = AlterPartition(BrokerId(2), -1, 3, 4, ((BrokerId(2), -1),))
    plans_of: dict[str, Callable[[Policies], Generator[None, None, object]]] = {
        "balance": lambda of: broker_plans.planning_balance(image, of, 10),
        "directories": lambda of: broker_plans.planning_directories(
            image, BrokerId(2), dict.fromkeys(keys, LOST_DIRECTORY), of
        ),
        "requested": lambda of: broker_plans.planning_requested_elections(
            image, Election.PREFERRED, None, of
        ),
        "isr": lambda of: broker_plans.planning_alter_partitions(
            image, [(*key, shrink) for key in keys], of
        ),
    }
    elections = _elections_of_a_slice(plans_of[plan])
    assert sum(elections) == 1_000
    assert max(elections) <= ELEMENTS_PER_SLICE // ELECTION_COST


@pytest.mark.parametrize("large", ["topic", "topic and configs", "configs"])
def test_change_with_a_part_that_exceeds_one_write_changes_nothing(large: str) -> None:
    def config(name: str, size: int) -> ConfigChange:
        op = ConfigOp("follower.replication.throttled.replicas", OpType.SET, "1:2," * (size // 4))
        return ConfigChange(ResourceType.TOPIC, name, (op,))

    def creation(name: str, count: int, size: int) -> NewTopic:
        text = "1:2," * (size // 4)
        configs = (("follower.replication.throttled.replicas", text),)
        return NewTopic(name, count, 3, configs=configs)

    with running(conditions=SMALL) as world:
        _create(world, "a")
        _create(world, "b")
        controller = _stable(world)
        offset = controller.image.offset
        with pytest.raises(KafkaError, match="limit of one write") as raised:
            if large == "configs":
                world.run(controller.alter_configs([config("a", 40), config("b", 7_000)]))
            else:
                count, size = (600, 4) if large == "topic" else (150, 4_000)
                topics = [NewTopic("c", 3, 3), creation("d", count, size)]
                world.run(controller.create_topics(topics))
        assert raised.value.code == ErrorCode.POLICY_VIOLATION
        assert controller.image.offset == offset
        _create(world, "e", 100, 3)  # in several writes
        assert set(_stable(world).image.topics_by_name) == {"a", "b", "e"}
