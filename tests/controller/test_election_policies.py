"""``min.insync.replicas`` of a cluster: one value for controller and leaders, and the ELR (E4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.alter_partition import AlterPartition
from odradek.controller.broker_changes import ELECTION_COST, Policies
from odradek.controller.cluster_controller import ClusterController
from odradek.controller.election import ElectionPolicy
from odradek.controller.election_policies import (
    UNCLEAN,
    ElectionPolicies,
    check_min_isr,
    planning_min_isr,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata import znodes
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.delta import MetadataDelta, MetadataProvenance
from odradek.metadata.image import BrokerRegistration, MetadataImage
from odradek.metadata.persistent import PersistentMap
from odradek.metadata.resources import ResourceType
from odradek.metadata.store.memory import MemoryStore
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.slicing import ELEMENTS_PER_SLICE, run_to_completion
from tests.controller.cluster_nodes import World
from tests.controller.test_cluster_controller import A, _create, _partition, _stable, running
from tests.helpers.call_count import count_calls

MIN_ISR = "min.insync.replicas"
TWO = {MIN_ISR: "2"}


def _change(kind: ResourceType, name: str, value: str | None, **fields: bool) -> ConfigChange:
    op = ConfigOp(MIN_ISR, OpType.DELETE if value is None else OpType.SET, value)
    return ConfigChange(kind, name, (op,), **fields)


def _alter(world: World, kind: ResourceType, name: str, value: str | None) -> ErrorCode:
    change = _change(kind, name, value)
    (error,) = world.run(world.controller().alter_configs([change]))
    return ErrorCode.NONE if error is None else error.code


def _shrink(world: World) -> None:
    """Shrink the ISR of the partition to its leader. The other members go to the ELR."""
    controller, partition = world.controller(), _partition(world)
    leader = world.nodes[partition.leader]
    isr = ((leader.id, leader.broker_epoch),)
    change = AlterPartition(
        leader.id, leader.broker_epoch, partition.leader_epoch, partition.partition_epoch, isr
    )
    topic_id = controller.image.topics_by_name[A].topic_id
    call = controller.alter_partitions(leader.id, leader.broker_epoch, [(topic_id, 0, change)])
    world.run(call)
    assert _partition(world).isr == (leader.id,)
    assert len(_partition(world).elr) == 2


def _without_events(controller: ClusterController) -> None:
    """Let nothing follow a request: the controller may fail right after its write."""
    controller._queue = lambda _: None  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize(
    ("kind", "name"), [(ResourceType.TOPIC, "a"), (ResourceType.BROKER, "")], ids=["topic", "all"]
)
def test_e4_lowered_minimum_clears_the_elr_in_the_same_write(kind: ResourceType, name: str) -> None:
    """The leader commits with the new minimum. A member of the ELR may lack these records."""
    with running(configs=TWO) as world:
        _create(world, count=1)
        _shrink(world)
        _without_events(world.controller())
        writes = len(world.ensemble.positions)
        assert _alter(world, kind, name, "1") is ErrorCode.NONE
        assert len(world.ensemble.positions) == writes + 1
        assert _partition(world).elr == ()


def test_e4_raised_minimum_counts_from_its_metadata_offset_on() -> None:
    with running() as world:
        _create(world, count=1)
        assert _alter(world, ResourceType.TOPIC, "a", "2") is ErrorCode.NONE
        _shrink(world)


def test_e4_minimum_of_the_controller_is_that_of_its_image() -> None:
    """The configs of the controller's broker follow later, with the feed."""
    with running(configs=TWO) as world:
        _create(world, count=1)
        assert _alter(world, ResourceType.BROKER, "", "1") is ErrorCode.NONE
        controller, partition = world.controller(), _partition(world)
        leader = world.nodes[partition.leader]
        isr = ((leader.id, leader.broker_epoch),)
        change = AlterPartition(leader.id, leader.broker_epoch, 0, 0, isr)
        topic_id = controller.image.topics_by_name[A].topic_id
        call = controller.alter_partitions(leader.id, leader.broker_epoch, [(topic_id, 0, change)])
        world.run(call)
        assert (_partition(world).isr, _partition(world).elr) == ((leader.id,), ())


def test_e4_minimum_of_a_new_cluster_is_in_its_metadata() -> None:
    """Brokers may be started with different values. All of them have to use one."""
    with running(configs=TWO) as world:
        controller = _stable(world)
        assert controller.image.broker_configs[""][MIN_ISR] == "2"
        offset = controller.image.offset
        active = world.active()
        assert active is not None
        world.run(active.kill())
        world.advance(25)
        assert _stable(world).image.broker_configs[""][MIN_ISR] == "2"
        assert world.controller().image.offset > offset


def test_e4_minimum_of_one_broker_is_removed_at_a_take_over() -> None:
    """A single broker, whose metadata was moved into the cluster, may have had one."""
    with running() as world:

        async def write() -> None:
            store = MemoryStore(world.ensemble, timers=world.timers)
            await store.open()
            path = znodes.broker_config_path("1")
            await store.create(path, znodes.encode_configs({MIN_ISR: "3", "num.io.threads": "5"}))
            await store.delete(znodes.CONTROLLER)
            await store.close()

        for node in world.nodes.values():
            node.controller._must_load = True
        world.run(write())
        world.ensemble.violations.clear()  # the write is not one of a controller
        world.advance(5)
        assert _stable(world).image.broker_configs["1"] == {"num.io.threads": "5"}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("1", "2", ErrorCode.INVALID_CONFIG),
        ("", None, ErrorCode.INVALID_CONFIG),
        ("", "2", ErrorCode.NONE),
        ("1", None, ErrorCode.INVALID_CONFIG),
    ],
)
def test_e4_brokers_have_one_minimum(name: str, value: str | None, error: ErrorCode) -> None:
    with running() as world:
        assert _alter(world, ResourceType.BROKER, name, value) is error
        assert "1" not in world.controller().image.broker_configs


def test_e4_other_configs_of_a_broker_may_change() -> None:
    with running() as world:
        op = ConfigOp("log.cleaner.threads", OpType.SET, "2")
        change = ConfigChange(ResourceType.BROKER, "1", (op,))
        assert world.run(world.controller().alter_configs([change])) == [None]


def test_e4_partition_below_a_lowered_minimum_keeps_its_elr() -> None:
    """Its high watermark stands still with either minimum. Kafka clears the ELR."""
    with running(configs={MIN_ISR: "3"}) as world:
        _create(world, count=1)
        _shrink(world)
        elr = _partition(world).elr
        assert _alter(world, ResourceType.TOPIC, "a", "2") is ErrorCode.NONE
        assert _partition(world).elr == elr
        assert _alter(world, ResourceType.TOPIC, "a", "3") is ErrorCode.NONE
        assert _partition(world).elr == elr


def test_e4_minimum_of_all_brokers_is_kept_when_all_configs_are_replaced() -> None:
    with running() as world:
        change = ConfigChange(ResourceType.BROKER, "", (), replace=True)
        (error,) = world.run(world.controller().alter_configs([change]))
        assert error is not None
        assert error.code is ErrorCode.INVALID_CONFIG
        assert BrokerId(1) in world.controller().image.brokers


def _configured(*configs: tuple[ResourceType, str, str, str]) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for kind, name, key, value in configs:
        delta.replay(ConfigRecord(int(kind), name, key, value))
    return delta.apply(MetadataProvenance(BrokerId(2), 1, 1))


def test_controller_whose_own_configs_do_not_fit_those_of_all_brokers_still_elects() -> None:
    """An earlier controller, with a larger buffer, has accepted the number of threads."""
    image = _configured(
        (ResourceType.BROKER, "", MIN_ISR, "2"),
        (ResourceType.BROKER, "", "log.cleaner.threads", "8"),
    )
    config = BrokerConfig({"node.id": "1", "log.cleaner.dedupe.buffer.size": str(3 << 20)})
    assert ElectionPolicies(config).of(image)(A).min_insync_replicas == 2


def test_each_config_of_a_topic_overrides_the_default_of_the_cluster() -> None:
    image = _configured(
        (ResourceType.BROKER, "", MIN_ISR, "2"),
        (ResourceType.TOPIC, "unclean", UNCLEAN, "true"),
        (ResourceType.TOPIC, "three", MIN_ISR, "3"),
        (ResourceType.TOPIC, "other", "retention.ms", "1"),
    )
    policy = ElectionPolicies(BrokerConfig({"node.id": "1"})).of(image)
    default = ElectionPolicy(2, unclean=False)
    assert policy(TopicName("unclean")) == replace(default, unclean=True)
    assert policy(TopicName("three")) == replace(default, min_insync_replicas=3)
    assert policy(TopicName("other")) == policy(TopicName("none")) == default


def test_e4_own_minimum_of_the_controllers_broker_decides_no_election() -> None:
    image = _configured(
        (ResourceType.BROKER, "1", MIN_ISR, "3"), (ResourceType.BROKER, "", MIN_ISR, "2")
    )
    assert ElectionPolicies(BrokerConfig({"node.id": "1"})).of(image)(A).min_insync_replicas == 2


def test_configs_are_parsed_for_each_image_with_other_configs_of_brokers_once() -> None:
    """The configs of the controller's broker itself stay as they are."""
    config = BrokerConfig({"node.id": "1"})
    policies = ElectionPolicies(config)
    two = _configured((ResourceType.BROKER, "", MIN_ISR, "2"))
    three = _configured((ResourceType.BROKER, "", MIN_ISR, "3"))
    counts = []
    for image in (two, replace(two, offset=2), three):
        calls = count_calls(lambda image=image: policies.of(image))  # type: ignore[misc]
        counts.append(calls.total)
        minimum = image.broker_configs[""][MIN_ISR]
        assert policies.of(image)(A).min_insync_replicas == int(minimum)
    assert counts[1] < counts[0] / 2 < counts[2], counts
    assert config.get_int(MIN_ISR) == 1


def test_e4_safety_records_remove_the_minimum_of_each_broker_and_give_the_cluster_one() -> None:
    policies = ElectionPolicies(BrokerConfig({"node.id": "1", MIN_ISR: "2"}))
    kind = int(ResourceType.BROKER)
    assert policies.safety_records(MetadataImage()) == [ConfigRecord(kind, "", MIN_ISR, "2")]
    image = _configured(
        (ResourceType.BROKER, "", MIN_ISR, "3"),
        (ResourceType.BROKER, "1", "log.cleaner.threads", "2"),
        (ResourceType.BROKER, "2", MIN_ISR, "1"),
    )
    assert policies.safety_records(image) == [ConfigRecord(kind, "2", MIN_ISR, None)]


def _no_policies(image: MetadataImage) -> Policies:
    raise AssertionError("no election is decided")


def _with_elr(partitions: int) -> MetadataImage:
    """Return an image with partitions whose ISR is below the minimum of 2."""
    delta = MetadataDelta(MetadataImage())
    topic_id = Uuid(b"a" * 16)
    delta.replay(TopicRecord(A, topic_id))
    for number in range(partitions):
        record = PartitionRecord(
            number, topic_id, replicas=[1, 2], isr=[1], leader=1, eligible_leader_replicas=[2]
        )
        delta.replay(record)
    delta.brokers.set(BrokerId(1), BrokerRegistration(BrokerId(1), "host", 9092))
    return delta.apply(MetadataProvenance(BrokerId(1), 1, 1))


def test_e4_configs_other_than_the_minimum_change_no_partition() -> None:
    kind = int(ResourceType.TOPIC)
    records = [ConfigRecord(kind, A, UNCLEAN, "true"), FeatureLevelRecord("group.version", 1)]
    planning = planning_min_isr(_with_elr(1), records, _no_policies)
    assert run_to_completion(planning) == []


def test_e4_lowered_minimum_clears_each_elr_in_time_slices() -> None:
    image = _with_elr(4 * ELEMENTS_PER_SLICE)
    lowered = ConfigRecord(int(ResourceType.TOPIC), A, MIN_ISR, "1")
    policies = ElectionPolicies(BrokerConfig({"node.id": "1", MIN_ISR: "2"}))
    planning = planning_min_isr(image, [lowered], policies.of)
    slices = 0
    try:
        while True:
            next(planning)
            slices += 1
    except StopIteration as ended:
        records = ended.value
    assert slices >= 4 * ELECTION_COST
    assert len(records) == 4 * ELEMENTS_PER_SLICE
    assert all(each.eligible_leader_replicas == [] for each in records)


def test_e4_operation_on_the_minimum_of_a_broker_is_refused_among_others() -> None:
    """It changes nothing, because the broker has no minimum of its own."""
    ops = (
        ConfigOp("log.cleaner.threads", OpType.SET, "2"),
        ConfigOp(MIN_ISR, OpType.DELETE, None),
    )
    change = ConfigChange(ResourceType.BROKER, "1", ops)
    with pytest.raises(KafkaError) as raised:
        check_min_isr(change, {}, {"log.cleaner.threads": "2"})
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_policies_of_an_image_parse_each_combination_of_values_once() -> None:
    names = [TopicName(f"t{number}") for number in range(100)]
    values = [TWO, {**TWO, "retention.ms": "5"}, {UNCLEAN: "true"}, {"retention.ms": "5"}]
    image = MetadataImage(topic_configs=PersistentMap(dict(zip(names, values * 25, strict=True))))
    policy_of = ElectionPolicies(BrokerConfig({})).of(image)
    expected = [ElectionPolicy(2), ElectionPolicy(2), ElectionPolicy(1, True), ElectionPolicy(1)]
    first = [policy_of(name) for name in names]
    assert first == expected * 25
    assert len({id(each) for each in first}) == 3
    calls = count_calls(policy_of, names[0]).total
    assert calls < 20, "nothing is parsed"
