"""Rare orders of events at a controller, found by removing single lines of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from odradek.controller.alter_partition import AlterPartition
from odradek.controller.broker_plans import with_live_leaders
from odradek.controller.controller_settings import ControllerSettings
from odradek.controller.controller_term import _divided
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata import znodes
from odradek.metadata.image import NO_LEADER, BrokerRegistration, MetadataImage
from odradek.metadata.records import MetadataRecord
from odradek.metadata.resources import ResourceType
from odradek.metadata.store.interface import Operation, Written
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.topic_changes import NewPartitions, NewTopic
from odradek.protocol.messages.config_record import ConfigRecord
from odradek.protocol.messages.metadata_feed_request import MetadataFeedRequest
from odradek.protocol.messages.partition_record import PartitionRecord
from odradek.protocol.messages.topic_record import TopicRecord
from odradek.result_tasks import wait
from odradek.slicing import run_to_completion
from tests.controller.cluster_nodes import Node, World
from tests.controller.test_cluster_controller import (
    SMALL,
    A,
    _begin_and_kill,
    _create,
    _partition,
    _stable,
    running,
)

PATIENT = ControllerSettings(apply_timeout_ms=600_000)


def _other(world: World) -> Node:
    """Return a node that is not the controller."""
    return next(node for node in world.nodes.values() if not node.controller.is_active)


def test_poll_of_an_earlier_process_of_a_broker_is_refused() -> None:
    with running() as world:
        node = _other(world)
        image = world.controller().image
        request = MetadataFeedRequest(
            "cluster", node.id, node.broker_epoch - 1, image.controller_epoch, image.offset, 0, 1
        )

        async def poll() -> int:
            return (await wait(world.controller().feed.poll(request))).error_code

        assert world.run(poll()) == ErrorCode.STALE_BROKER_EPOCH


def test_request_does_not_wait_for_a_leader_that_is_fenced() -> None:
    with running(settings=PATIENT) as world:
        node = _other(world)
        node.polls = False
        world.advance(1)
        begin = world.clock.monotonic_ms()
        topic = NewTopic("a", assignments=[(0, [node.id])])
        world.run(world.controller().create_topics([topic]))
        assert world.clock.monotonic_ms() - begin < 20_000
        assert world.controller().image.brokers[node.id].fenced


def test_request_does_not_wait_when_the_term_ends() -> None:
    with running(settings=PATIENT) as world:
        active = world.active()
        assert active is not None
        _other(world).polls = False
        world.advance(1)

        async def create() -> float:
            topic = NewTopic("a", assignments=[(0, [_other(world).id])])
            call = asyncio.ensure_future(active.controller.create_topics([topic]))
            await asyncio.sleep(1)
            assert not call.done()
            world.ensemble.expire(active.store.session_id)
            begin = world.clock.monotonic_ms()
            await call
            return world.clock.monotonic_ms() - begin

        assert world.run(create()) < 1_000


def test_election_is_tried_again_when_the_node_of_the_controller_is_not_valid() -> None:
    with running() as world:

        async def write() -> MemoryStore:
            store = MemoryStore(world.ensemble, timers=world.timers)
            await store.open()
            await store.delete(znodes.CONTROLLER)
            await store.create(znodes.CONTROLLER, b"not JSON", ephemeral=True)
            return store

        # The watches that are registered from now on report nothing.
        for node in world.nodes.values():
            node.controller._on_watch = lambda _: None  # type: ignore[method-assign]
        store = world.run(write())
        world.advance(3)
        assert world.active() is None
        world.run(store.close())
        world.advance(3)
        _stable(world)


def test_e5_second_controlled_shutdown_waits_for_its_own_change() -> None:
    """The broker runs again in the same term of the controller."""
    with running() as world:
        _create(world)
        node, controller = _other(world), world.controller()

        async def beat() -> bool:
            call = controller.broker_heartbeat(node.id, node.broker_epoch, wants_shutdown=True)
            return (await call).should_shut_down

        world.run(beat())
        world.advance(1)
        assert world.run(beat())
        world.run(node.kill())
        world.advance(25)
        world.run(node.restart())
        world.advance(5)
        assert controller.is_active
        assert not controller.image.brokers[node.id].in_controlled_shutdown
        for each in world.nodes.values():
            each.polls = False  # no broker applies the next change
        world.advance(1)
        assert not world.run(beat())


def test_i4_partition_that_occurs_twice_in_a_request_is_changed_once() -> None:
    with running() as world:
        _create(world)
        partition = _partition(world)
        leader = world.nodes[partition.leader]
        isr = ((leader.id, leader.broker_epoch),)
        change = AlterPartition(leader.id, leader.broker_epoch, 0, 0, isr)
        topic_id = world.controller().image.topics_by_name[A].topic_id
        call = world.controller().alter_partitions(
            leader.id, leader.broker_epoch, [(topic_id, 0, change), (topic_id, 0, change)]
        )
        codes = [each.error for each in world.run(call)]
        assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert _partition(world).partition_epoch == partition.partition_epoch + 1
        _stable(world)


def test_new_partition_without_a_live_replica_has_one_in_sync() -> None:
    """It never had a record, so its first replica can be elected later."""
    broker = BrokerId(1)
    brokers = {broker: BrokerRegistration(broker, "host", 9092, fenced=True)}
    electing = with_live_leaders([PartitionRecord(replicas=[1, 2])], MetadataImage(), brokers)
    (record,) = run_to_completion(electing)
    assert isinstance(record, PartitionRecord)
    assert (record.leader, record.isr) == (NO_LEADER, [1])


def test_controller_that_stops_while_a_request_waits_refuses_it() -> None:
    with running() as world:
        active = world.active()
        assert active is not None

        async def scenario() -> None:
            calls = [
                asyncio.ensure_future(active.controller.allocate_producer_ids()) for _ in range(3)
            ]
            await asyncio.sleep(0)
            await active.controller.stop()
            for call in calls:
                with pytest.raises(KafkaError) as raised:
                    await call
                assert raised.value.code is ErrorCode.NOT_CONTROLLER

        world.run(scenario())


def test_deletions_do_not_wait_for_a_broker_that_was_unregistered() -> None:
    """Otherwise the records of all later deletions would stay for good."""
    with running() as world:
        _create(world)
        node = _other(world)
        world.run(node.kill())
        world.advance(25)
        controller = world.controller()
        topic_id = controller.image.topics_by_name[A].topic_id
        world.run(controller.delete_topics([topic_id]))
        for each in world.nodes.values():
            if each is not node:
                call = controller.deletions_finished(each.id, each.broker_epoch, [topic_id])
                world.run(call)
        assert [each.brokers for each in controller.image.deletions.values()] == [(node.id,)]
        world.run(controller.unregister_broker(node.id))
        assert not _stable(world).image.deletions


def test_later_deletions_do_not_wait_for_a_broker_that_was_unregistered() -> None:
    """The broker is still a replica of the partitions."""
    with running() as world:
        _create(world)
        node = _other(world)
        world.run(node.kill())
        world.advance(25)
        controller = world.controller()
        world.run(controller.unregister_broker(node.id))
        topic_id = controller.image.topics_by_name[A].topic_id
        assert world.run(controller.delete_topics([topic_id])) == [None]
        waiting = controller.image.deletions[topic_id].brokers
        assert set(waiting) == set(world.nodes) - {node.id}
        _stable(world)


def test_divided_change_keeps_a_topic_and_its_configs_together() -> None:
    topic = TopicRecord("a", Uuid(bytes(16)))
    first, second, other = (
        ConfigRecord(int(ResourceType.TOPIC), resource, key, "1")
        for resource, key in (("a", "x"), ("a", "y"), ("b", "x"))
    )
    partitions = [PartitionRecord(number, topic.topic_id) for number in range(2)]

    def lengths(count: int, *records: MetadataRecord) -> list[int]:
        parts = _divided(records, count)
        assert [each for part in parts for each in part] == list(records)
        return [len(part) for part in parts]

    assert lengths(2, topic, first, second, *partitions) == [3, 2]
    assert lengths(2, topic, first, *partitions) == [2, 2]
    assert lengths(2, first, second, other) == [2, 1]
    assert lengths(2, other, first, second) == [1, 2]
    assert lengths(2, topic, first, second) == [3]
    assert lengths(2, first, second) == [2]
    assert lengths(2, topic) == [1]
    assert lengths(2, *partitions, *partitions) == [2, 2]
    assert lengths(3, *partitions, *partitions, *partitions) == [2, 2, 2]
    assert lengths(9, *partitions) == [1, 1]
    assert lengths(3, topic, first, second, *partitions) == [3, 2]


def test_controller_serves_requests_after_the_first_write_of_its_term() -> None:
    """Before it, the elections of the take-over are missing in the image."""
    with running() as world:
        active = world.active()
        assert active is not None
        standby = _other(world)
        seen: list[bool] = []
        multi = standby.store.multi

        async def recorded(operations: Sequence[Operation]) -> list[Written]:
            if any(each.path == znodes.METADATA for each in operations):
                seen.append(standby.controller.is_active)
                with pytest.raises(KafkaError) as raised:
                    await standby.controller.allocate_producer_ids()
                assert raised.value.code is ErrorCode.NOT_CONTROLLER
            return await multi(operations)

        standby.store.multi = recorded  # type: ignore[method-assign]
        for node in world.nodes.values():
            if node is not standby:
                world.run(node.kill())
        world.advance(30)
        assert standby.controller.is_active
        assert seen == [False]


@pytest.mark.parametrize("writes", range(1, 5))
def test_request_for_two_topics_is_completed_as_far_as_it_was_begun(writes: int) -> None:
    with running(conditions=SMALL) as world:
        topics = [NewTopic(name, 30, 2) for name in ("a", "b")]
        _begin_and_kill(world, "create_topics", topics, writes=writes)
        image = _stable(world).image
        found = {name: topic.partition_count for name, topic in image.topics_by_name.items()}
        assert found in ({"a": 30}, {"a": 30, "b": 30})


@pytest.mark.parametrize("writes", range(1, 5))
def test_topics_get_all_partitions_of_a_request_or_none(writes: int) -> None:
    with running(conditions=SMALL) as world:
        _create(world, "a", 2, 2)
        _create(world, "b", 2, 2)
        more = [NewPartitions(name, 30) for name in ("a", "b")]
        _begin_and_kill(world, "create_partitions", more, writes=writes)
        counts = [t.partition_count for t in _stable(world).image.topics_by_name.values()]
        assert counts in ([30, 2], [30, 30])
        call = world.controller().create_partitions([NewPartitions("b", 50)])
        assert world.run(call) == [None]
        assert _stable(world).image.topics_by_name[TopicName("b")].partition_count == 50
