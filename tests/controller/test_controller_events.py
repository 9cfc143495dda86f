"""The events of a controller: its queue, timers, listeners, and the liveness of brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from odradek.controller.controller_settings import ControllerSettings
from odradek.controller.registered_brokers import _is_same_process
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import ZERO_UUID, BrokerId, TopicName, Uuid
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import NO_LEADER, BrokerRegistration
from odradek.metadata.resources import ResourceType
from odradek.metadata.store.ensemble import EnsembleConditions
from odradek.metadata.store.interface import SessionState, StoreFailure
from odradek.metadata.topic_changes import NewTopic
from tests.controller.cluster_nodes import Node, World
from tests.controller.test_cluster_controller import (
    A,
    _create,
    _partition,
    _stable,
    running,
)

NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER
PATIENT = ControllerSettings(apply_timeout_ms=600_000)


def _active(world: World) -> Node:
    active = world.active()
    assert active is not None
    return active


def _other(world: World) -> Node:
    return next(node for node in world.nodes.values() if not node.controller.is_active)


def _call(world: World, call: Callable[..., object], *arguments: object) -> None:
    """Call on the event loop."""

    async def run() -> None:
        call(*arguments)

    world.run(run())


def test_listener_is_called_at_each_change_of_the_controller() -> None:
    with running() as world:
        active, other = _active(world), _other(world)
        seen: list[tuple[BrokerId, bool]] = []
        controller = active.controller
        controller.subscribe(lambda: seen.append((controller.controller_id, controller.is_active)))
        others: list[BrokerId] = []
        other.controller.subscribe(lambda: others.append(other.controller.controller_id))
        _call(world, world.ensemble.block, active.store.session_id)
        world.advance(5)
        assert seen == [(NO_LEADER, False)]
        world.advance(20)
        assert others[-1] == world.controller()._node_id
        third = next(
            node
            for node in world.nodes.values()
            if node is not active and not node.controller.is_active
        )
        known: list[BrokerId] = []
        third.controller.subscribe(lambda: known.append(third.controller.controller_id))
        _call(world, third.store.disconnect)
        world.advance(5)
        assert known == [NO_LEADER, world.controller()._node_id]


def test_stopped_controller_contends_no_longer() -> None:
    with running(1) as world:
        controller = _active(world).controller
        seen: list[bool] = []
        controller.subscribe(lambda: seen.append(controller.is_active))
        world.run(controller.stop())
        assert not controller.is_active
        assert controller.controller_id == NO_LEADER
        world.advance(400)
        assert seen == [False]
        with pytest.raises(KafkaError) as raised:
            world.run(controller.allocate_producer_ids())
        assert raised.value.code is ErrorCode.NOT_CONTROLLER


def test_stop_waits_for_the_events_in_the_queue() -> None:
    with running(1) as world:
        controller = _active(world).controller

        async def scenario() -> bool:
            call = asyncio.ensure_future(controller.create_topics([NewTopic("a", 1, 1)]))
            await asyncio.sleep(0)
            await controller.stop()
            is_empty = not controller._events._waiting and controller._events._consumer is None
            await asyncio.gather(call, return_exceptions=True)
            return is_empty

        assert world.run(scenario())


async def _until_write_is_in_flight(node: Node) -> None:
    for _ in range(100):
        connection = node.store._connection
        if connection and connection.requests and connection.requests[-1].is_write:
            return
        await asyncio.sleep(0)
    raise AssertionError("no write is in flight")


def test_end_of_the_term_refuses_all_requests_although_a_write_is_in_flight() -> None:
    """The write waits for the session. Another broker serves the requests in the meantime."""
    with running(conditions=EnsembleConditions(latency_ms=(1, 1))) as world:
        cut_off = _active(world)

        async def scenario() -> None:
            controller = cut_off.controller
            calls = [
                asyncio.ensure_future(controller.create_topics([NewTopic("a", 1, 3)])),
                asyncio.ensure_future(controller.allocate_producer_ids()),
            ]
            await _until_write_is_in_flight(cut_off)
            world.ensemble.block(cut_off.store.session_id)
            results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)
            assert [getattr(each, "code", None) for each in results] == [NOT_CONTROLLER] * 2

        world.run(scenario())
        world.advance(60)
        assert cut_off.store.state is not SessionState.CONNECTED
        assert _active(world) is not cut_off
        world.run(world.controller().allocate_producer_ids())


def test_request_of_a_term_that_has_ended_is_not_executed_in_the_next_term() -> None:
    """Its sender has got NOT_CONTROLLER, and may have sent it again."""
    with running(1, EnsembleConditions(latency_ms=(1, 1))) as world:
        node = _active(world)
        epoch = node.controller.epoch

        async def scenario() -> None:
            calls = [
                asyncio.ensure_future(node.controller.create_topics([NewTopic(name, 1, 1)]))
                for name in ("first", "second")
            ]
            await _until_write_is_in_flight(node)
            node.store.disconnect()
            results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)
            assert [getattr(each, "code", None) for each in results] == [NOT_CONTROLLER] * 2
            await asyncio.sleep(5)

        world.run(scenario())
        assert node.controller.is_active
        assert node.controller.epoch == epoch + 1
        assert "second" not in node.controller.image.topics_by_name


def test_event_is_queued_once() -> None:
    with running() as world:
        controller = _active(world).controller
        runs = 0

        async def event() -> None:
            nonlocal runs
            runs += 1
            await asyncio.sleep(0.1)

        async def scenario() -> None:
            for _ in range(5):
                controller._queue(event)
            await asyncio.sleep(0.05)  # the first run has begun
            controller._queue(event)
            controller._queue(event)
            await asyncio.sleep(1)

        world.run(scenario())
        assert runs == 2


async def _failing() -> None:
    raise StoreFailure("full")


def test_failed_event_is_followed_by_an_election() -> None:
    with running() as world:
        controller = _active(world).controller
        epoch = controller.epoch
        _call(world, controller._queue, _failing)
        world.advance(3)
        assert world.controller().epoch > epoch
        _stable(world)


def test_controller_that_has_read_the_store_once_uses_its_image_again() -> None:
    with running() as world:
        controller = _active(world).controller
        controller._must_load = True
        _call(world, controller._queue, _failing)
        world.advance(3)
        assert controller.is_active
        assert not controller._must_load


def test_partition_without_a_leader_is_tried_again_at_each_interval() -> None:
    """A replica becomes available without an event that elects it, for example a config."""
    settings = ControllerSettings(unclean_interval_ms=50_000)
    with running(settings=settings) as world:
        counts = []
        controller = _active(world).controller
        elect = controller._elect_leaderless

        async def counted() -> None:
            counts.append(world.clock.monotonic_ms())
            await elect()

        controller._elect_leaderless = counted  # type: ignore[method-assign]
        _call(world, controller._arm, "unclean", 50_000, controller._elect_leaderless)
        world.advance(160)
        assert len(counts) == 3


def test_timers_of_a_term_end_with_it() -> None:
    settings = ControllerSettings(unclean_interval_ms=5_000, balance_interval_ms=5_000)
    with running(settings=settings) as world:
        controller = _active(world).controller
        armed = dict(controller._armed._armed)
        assert set(armed) == {"liveness", "unclean", "balance"}
        _call(world, controller._armed.arm, "liveness", 100, controller._tick)
        assert armed["liveness"] is not controller._armed._armed["liveness"]
        ticks: list[float] = []
        expired = controller._serving().registry.expired

        def counted(now_ms: float) -> list[BrokerId]:
            ticks.append(now_ms)
            return expired(now_ms)

        controller._serving().registry.expired = counted  # type: ignore[method-assign]
        world.advance(0.2)
        assert len(ticks) == 1, "the timer that was replaced does not fire"
        _call(world, controller._end_term, "test")
        assert not controller._armed._armed
        world.advance(20)
        assert len(ticks) == 1


# --- liveness ---


def test_new_broker_is_fenced_until_it_has_caught_up() -> None:
    """The controller gives it no leadership before it has the metadata."""
    with running() as world:
        _create(world, count=1)
        node = _other(world)
        world.run(node.kill())
        world.advance(25)
        node.polls = False
        world.run(node.restart())
        world.advance(1)
        broker = world.controller().image.brokers[node.id]
        assert broker.epoch == node.broker_epoch
        assert broker.fenced
        assert node.id not in _partition(world).isr
        node.polls = True
        world.advance(2)
        assert not _stable(world).image.brokers[node.id].fenced


def test_broker_that_does_not_poll_during_a_long_event_is_fenced_after_it() -> None:
    """The delay of the queue is no sign that the process of the controller was stopped."""
    with running() as world:
        controller = _active(world).controller
        node = _other(world)
        node.polls = False

        async def long() -> None:
            await asyncio.sleep(30)

        _call(world, controller._queue, long)
        world.advance(29)
        assert not controller.image.brokers[node.id].fenced
        world.advance(2)
        assert controller.image.brokers[node.id].fenced
        others = [each for each in world.nodes if each != node.id]
        assert not any(controller.image.brokers[each].fenced for each in others)


def _without_polls(world: World) -> Node:
    """Return a broker that polls no longer."""
    node = _other(world)
    node.polls = False
    world.advance(1)
    return node


async def _creation(world: World, node: Node) -> asyncio.Future[object]:
    """Begin to create a topic on a broker. The request waits for a poll of the broker."""
    topic = NewTopic("a", assignments=[(0, [node.id])])
    call = asyncio.ensure_future(world.controller().create_topics([topic]))
    await asyncio.sleep(1)
    assert not call.done()
    return call


async def _duration_ms(world: World, call: asyncio.Future[object]) -> float:
    begin = world.clock.monotonic_ms()
    await call
    return world.clock.monotonic_ms() - begin


def test_request_does_not_wait_for_a_broker_that_is_fenced_in_the_meantime() -> None:
    with running(settings=PATIENT) as world:
        node = _without_polls(world)

        async def create() -> None:
            call = await _creation(world, node)
            node.store.disconnect()
            world.ensemble.expire(node.store.session_id)
            assert await _duration_ms(world, call) < 3_000

        world.run(create())


def test_request_ends_with_the_poll_that_reports_its_change() -> None:
    with running(settings=PATIENT) as world:
        node = _without_polls(world)

        async def create() -> None:
            call = await _creation(world, node)
            node.polls = True
            assert await _duration_ms(world, call) < 1_000
            assert node.image.offset == world.controller().image.offset

        world.run(create())


def test_request_does_not_wait_for_a_broker_that_is_unregistered() -> None:
    with running(settings=PATIENT) as world:
        node = _without_polls(world)

        async def create() -> None:
            call = await _creation(world, node)
            await world.controller().unregister_broker(node.id)
            assert await _duration_ms(world, call) < 1_000

        world.run(create())


def test_only_polls_of_other_brokers_show_that_the_controller_is_not_isolated() -> None:
    with running(1) as world:
        controller = _active(world).controller
        before = controller.others_polled_ms
        world.advance(5)
        assert controller.others_polled_ms == before < 0
    with running(2) as world:
        controller = _active(world).controller
        world.advance(5)
        assert world.clock.monotonic_ms() - controller.others_polled_ms < 1_000


def test_brokers_without_an_incarnation_id_are_different_processes() -> None:
    def broker(incarnation: Uuid) -> BrokerRegistration:
        return BrokerRegistration(BrokerId(1), "host", 9092, incarnation_id=incarnation)

    one, two = Uuid(b"1" * 16), Uuid(b"2" * 16)
    assert _is_same_process(broker(one), broker(one))
    assert not _is_same_process(broker(one), broker(two))
    assert not _is_same_process(broker(ZERO_UUID), broker(ZERO_UUID))
    assert not _is_same_process(None, broker(one))


# --- the policies of elections ---


def test_configs_of_the_controllers_broker_count_for_elections() -> None:
    """A broker may be configured alone to elect uncleanly, as in Kafka."""
    with running() as world:
        controller = _active(world).controller
        op = ConfigOp("unclean.leader.election.enable", OpType.SET, "true")
        change = ConfigChange(ResourceType.BROKER, str(controller._node_id), (op,))
        assert world.run(controller.alter_configs([change])) == [None]
        assert controller._policies.of(controller.image)("a").unclean  # type: ignore[arg-type]


def test_broker_that_applies_a_change_for_longer_than_the_session_timeout_is_live() -> None:
    with running() as world:
        _create(world, "keep", 3)
        _create(world)
        controller = world.controller()

        def slow(delta: MetadataDelta, *_: object) -> Iterator[asyncio.Future[None]]:
            """Rename many directories, for 12 s."""
            for _ in range(120 if delta.topics.removed else 0):
                yield asyncio.ensure_future(asyncio.sleep(0.1))

        for node in world.nodes.values():
            node.feed.subscribe(slow)
        before = list(controller.image.topics_by_name[TopicName("keep")].partitions)
        topic_id = controller.image.topics_by_name[A].topic_id
        world.run(controller.delete_topics([topic_id]))
        for _ in range(10):
            world.advance(1)
            assert not any(each.fenced for each in controller.image.brokers.values())
        world.advance(5)
        assert list(controller.image.topics_by_name[TopicName("keep")].partitions) == before
        _stable(world)
