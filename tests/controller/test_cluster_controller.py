"""Tests of the controller of a cluster: election, take-over, changes in several writes, hazards.

The names of ZooKeeper's hazards are those of docs/kafka-semantics.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from odradek.broker.requests.cluster import ControllerRequests
from odradek.controller.broker_requests import BrokerRequests
from odradek.controller.cluster_controller import ClusterController
from odradek.controller.controller_settings import ControllerSettings
from odradek.controller.controller_term import Committed
from odradek.controller.election import Election
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, TopicName, Uuid
from odradek.metadata import znodes
from odradek.metadata.config_changes import ConfigChange, ConfigOp, OpType
from odradek.metadata.image import NO_LEADER, PartitionImage
from odradek.metadata.resources import ResourceType
from odradek.metadata.store.ensemble import EnsembleConditions
from odradek.metadata.store.interface import (
    Create,
    Delete,
    NoNodeError,
    Operation,
    Performed,
    Set,
    UnknownOutcomeError,
)
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.topic_changes import CreatedTopic, NewPartitions, NewTopic
from odradek.protocol.messages import alter_partition_request, assign_replicas_to_dirs_request
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
from odradek.protocol.messages.assign_replicas_to_dirs_request import AssignReplicasToDirsRequest
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.result_tasks import wait
from tests.controller.cluster_nodes import Node, World, contents

A = TopicName("a")
SMALL = EnsembleConditions(multi_bytes_max=6_000)


@contextmanager
def running(
    count: int = 3,
    conditions: EnsembleConditions | None = None,
    settings: ControllerSettings | None = None,
    configs: dict[str, str] | None = None,
) -> Iterator[World]:
    world = World(7, conditions, settings, configs)
    world.start(count)
    try:
        yield world
        assert not world.ensemble.violations
    finally:
        world.close()


def _create(world: World, name: str = "a", count: int = 3, factor: int = 3) -> None:
    topic = NewTopic(name, count, factor)
    (result,) = world.run(world.controller().create_topics([topic]))
    assert isinstance(result, CreatedTopic), result


def _partition(world: World, number: int = 0) -> PartitionImage:
    return world.controller().image.topics_by_name[A].partitions[number]


def _stable(world: World) -> ClusterController:
    """Check that controller, store and the images of all running nodes agree."""
    world.advance(2)
    controller = world.controller()
    assert contents(controller.image) == contents(world.loaded())
    for node in world.nodes.values():
        if node.is_running and node.polls:
            assert contents(node.image) == contents(controller.image)
    return controller


# --- election and take-over ---


def test_one_broker_becomes_the_controller_and_all_know_it() -> None:
    with running() as world:
        active = world.active()
        assert active is not None
        assert [node.controller.controller_id for node in world.nodes.values()] == [active.id] * 3
        assert [node.controller.is_active for node in world.nodes.values()].count(True) == 1
        assert not any(each.fenced for each in active.controller.image.brokers.values())


def test_standby_takes_over_after_the_session_of_the_controller() -> None:
    with running() as world:
        _create(world)
        first = world.active()
        assert first is not None
        epoch = first.controller.epoch
        world.run(first.kill())
        world.advance(25)
        second = world.active()
        assert second is not None
        assert second is not first
        assert second.controller.epoch == epoch + 1
        _stable(world)
        for number in range(3):
            partition = _partition(world, number)
            assert first.id not in (partition.leader, *partition.isr)


def _reads(world: World, node: Node) -> list[Sequence[str]]:
    reads: list[Sequence[str]] = []
    get_many = node.store.get_many

    async def recorded(paths: Sequence[str]) -> object:
        reads.append(paths)
        return await get_many(paths)

    node.store.get_many = recorded  # type: ignore[method-assign,assignment]
    return reads


@pytest.mark.parametrize("is_current", [True, False])
def test_standby_with_a_current_image_reads_no_partition(is_current: bool) -> None:
    with running(2) as world:
        _create(world, factor=2)
        world.advance(1)
        active = world.active()
        assert active is not None
        (standby,) = [node for node in world.nodes.values() if node is not active]
        if not is_current:
            standby.polls = False
            world.advance(1)
            _create(world, "b", 1, 1)
        reads = _reads(world, standby)
        world.run(active.kill())
        world.advance(25)
        assert standby.controller.is_active
        read = any("/partitions/" in path for paths in reads for path in paths)
        assert read is not is_current
        assert contents(standby.controller.image) == contents(world.loaded())


def test_at_a_take_over_existing_leaders_stay(caplog: pytest.LogCaptureFixture) -> None:
    with running() as world:
        _create(world, count=6)
        before = [_partition(world, number) for number in range(6)]
        active = world.active()
        assert active is not None

        async def resign() -> None:
            store = MemoryStore(world.ensemble, timers=world.timers)
            await store.open()
            await store.delete(znodes.CONTROLLER)
            await store.close()

        epoch = active.controller.epoch
        world.run(resign())
        world.advance(3)
        assert world.controller().epoch > epoch
        _stable(world)
        assert [_partition(world, number) for number in range(6)] == before
        assert "bug in the event" not in caplog.text


def test_elections_of_a_take_over_are_one_delta() -> None:
    with running() as world:
        _create(world, count=30)
        active = world.active()
        assert active is not None
        offset = active.controller.image.offset
        world.run(active.kill())
        world.advance(25)
        changes = [each for each in world.ensemble.positions if each[1] > offset]
        assert changes[0] == (world.controller().epoch, offset + 1)
        assert all(active.id not in _partition(world, number).isr for number in range(30))
        assert len(changes) == 1


def test_controller_never_deletes_nodes_of_other_brokers() -> None:
    with running() as world:
        deleted: list[str] = []
        commit = world.ensemble._commit

        def recorded(operations: Sequence[Operation], session_id: int) -> list[Performed]:
            if session_id in (node.store.session_id for node in world.nodes.values()):
                deleted.extend(each.path for each in operations if isinstance(each, Delete))
            return commit(operations, session_id)

        world.ensemble._commit = recorded  # type: ignore[method-assign]
        active = world.active()
        assert active is not None
        world.run(active.kill())
        world.advance(25)
        world.run(world.controller().stop())
        assert not [path for path in deleted if path.startswith(znodes.BROKER_IDS)]


# --- hazards of ZooKeeper ---


@pytest.mark.parametrize("loses_response", [True, False])
def test_hazard_1_connection_loss_ambiguity(loses_response: bool) -> None:
    """A write without a response is resolved by reading, and a topic is created once or not."""
    with running() as world:
        active = world.active()
        assert active is not None
        store = active.store
        store.lose_next_response() if loses_response else store.lose_next_request()
        with pytest.raises(KafkaError) as raised:
            world.run(active.controller.create_topics([NewTopic("a", 3, 3)]))
        assert raised.value.code == ErrorCode.NOT_CONTROLLER
        world.advance(3)
        controller = _stable(world)
        assert (A in controller.image.topics_by_name) is loses_response


def test_hazard_1_lost_response_of_the_election() -> None:
    with running(1) as world:
        node = world.nodes[BrokerId(1)]
        epoch = node.controller.epoch

        async def resign() -> None:
            await node.store.delete(znodes.CONTROLLER)
            node.store.lose_next_response()

        world.run(resign())
        world.advance(3)
        assert node.controller.is_active
        assert node.controller.epoch == epoch + 1 or node.controller.epoch == epoch + 2
        _stable(world)


def test_hazard_2_session_expiry() -> None:
    """The controller stops being active when it notices, and a new broker epoch begins."""
    with running() as world:
        _create(world)
        active = world.active()
        assert active is not None
        epoch = active.broker_epoch

        async def expire() -> None:
            world.ensemble.expire(active.store.session_id)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not active.controller.is_active
            with pytest.raises(KafkaError) as raised:
                await active.controller.create_topics([NewTopic("b", 1, 1)])
            assert raised.value.code == ErrorCode.NOT_CONTROLLER

        world.run(expire())
        world.advance(5)
        controller = _stable(world)
        assert controller.image.brokers[active.id].epoch == active.broker_epoch > epoch


def test_hazard_3_zombie_controller() -> None:
    """Only the check of the epoch refuses a write between an election and the first write after it.

    The version of the metadata position is unchanged then. Both sessions are alive, because an
    administrator has deleted /controller.
    """
    with running(2) as world:
        active = world.active()
        assert active is not None
        (other,) = [node for node in world.nodes.values() if node is not active]

        async def take_over_halfway() -> None:
            active.controller._on_watch = lambda _: None  # type: ignore[method-assign]
            store = MemoryStore(world.ensemble, timers=world.timers)
            await store.open()
            node = await store.get(znodes.CONTROLLER_EPOCH)
            raised = b"%d" % (int(node.data) + 1)
            await store.multi(
                [
                    Delete(znodes.CONTROLLER),
                    Create(znodes.CONTROLLER, znodes.encode_controller(other.id, 0), True),
                    Set(znodes.CONTROLLER_EPOCH, raised, node.version),
                ]
            )
            term = active.controller._term
            assert term is not None
            with pytest.raises(KafkaError) as error:
                await term._write_nothing([], Committed(0))
            assert error.value.code == ErrorCode.NOT_CONTROLLER
            await store.close()

        world.run(take_over_halfway())
        world.advance(5)
        _stable(world)


def test_hazard_5_quick_bounce() -> None:
    """A restart within a session timeout leaves the same children, but another czxid."""
    with running() as world:
        _create(world)
        active = world.active()
        assert active is not None
        node = next(node for node in world.nodes.values() if node is not active)
        led = next(n for n in range(3) if _partition(world, n).leader == node.id)
        before = _partition(world, led)
        epoch = node.broker_epoch
        node.boot_id = "another"

        async def bounce() -> None:
            store = node.store
            world.ensemble.end_session(store.session_id)
            await node.kill()
            await node.restart()

        world.run(bounce())
        world.advance(3)
        controller = _stable(world)
        assert controller.image.brokers[node.id].epoch > epoch
        assert _partition(world, led).leader_epoch == before.leader_epoch + 1
        assert _partition(world, led).leader != node.id
        assert node.id not in _partition(world, led).isr


def test_hazard_9_order_across_nodes() -> None:
    """Each broker applies every change in the order of the metadata offsets, without a gap."""
    with running() as world:
        for number in range(5):
            _create(world, f"t{number}", 2, 2)
            world.run(world.controller().allocate_producer_ids())
        controller = _stable(world)
        offsets = [offset for _, offset in world.ensemble.positions]
        assert offsets == list(range(1, controller.image.offset + 1))


def test_znode_that_is_not_json_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with running(2) as world:

        async def register() -> None:
            store = MemoryStore(world.ensemble, timers=world.timers)
            await store.open()
            await store.create(f"{znodes.BROKER_IDS}/9", b"not JSON", ephemeral=True)
            await asyncio.sleep(2)
            await store.close()

        world.run(register())
        controller = _stable(world)
        assert set(controller.image.brokers) == {1, 2}
        assert "broker 9 is not registered" in caplog.text


# --- changes that exceed one write ---


def _halting(world: World, node: Node, writes: int) -> list[asyncio.Future[None]]:
    """Let the process of a node end after so many writes."""
    halted: list[asyncio.Future[None]] = []
    perform = node.store.perform
    left = writes

    async def limited(operations: Sequence[Operation]) -> list[Performed]:
        nonlocal left
        if left == 0:
            halted.append(asyncio.get_running_loop().create_future())
            await halted[-1]
        left -= 1
        return await perform(operations)

    node.store.perform = limited  # type: ignore[method-assign]
    return halted


def _begin_and_kill(world: World, call: str, *arguments: object, writes: int) -> bool:
    """Kill the controller in the middle of a change. Return whether it had ended before."""
    active = world.active()
    assert active is not None
    halted = _halting(world, active, writes)

    async def begin() -> bool:
        task = asyncio.ensure_future(getattr(active.controller, call)(*arguments))
        await asyncio.sleep(3)
        ended: bool = task.done()
        task.cancel()
        return ended

    ended: bool = world.run(begin())
    active.controller._events._closed = True
    for task in active._tasks:
        task.cancel()

    async def abandon() -> None:
        active.is_running = False
        await active.feed.stop()
        active.store.abandon()
        active.controller._end_term("killed")
        for each in halted:
            each.set_exception(UnknownOutcomeError("killed"))

    world.run(abandon())
    world.advance(30)
    return ended


@pytest.mark.parametrize("writes", range(6))
def test_creation_that_exceeds_one_write_is_completed_by_the_next_controller(writes: int) -> None:
    with running(conditions=SMALL) as world:
        topic = NewTopic("a", 40, 2, configs=[("min.insync.replicas", "2")])
        ended = _begin_and_kill(world, "create_topics", [topic], writes=writes)
        assert ended is (writes >= 5)
        controller = _stable(world)
        found = controller.image.topics_by_name.get(A)
        if writes == 0:
            assert found is None
            return
        assert found is not None
        assert found.partition_count == 40
        assert controller.image.topic_configs[A] == {"min.insync.replicas": "2"}
        assert all(each.leader != NO_LEADER for each in found.partitions)
        node = world.ensemble.tree.node(znodes.METADATA)
        assert znodes.decode_unfinished(node.data) == []


@pytest.mark.parametrize("is_current", [True, False])
@pytest.mark.parametrize("writes", range(6))
def test_deletion_that_exceeds_one_write_is_completed_by_the_next_controller(
    writes: int, is_current: bool
) -> None:
    with running(conditions=SMALL) as world:
        _create(world, "a", 40, 2)
        world.advance(2)
        active = world.active()
        assert active is not None
        if not is_current:
            for node in world.nodes.values():
                node.polls = node is active
        topic_id = world.controller().image.topics_by_name[A].topic_id
        ended = _begin_and_kill(world, "delete_topics", [topic_id], writes=writes)
        assert ended is (writes >= 5)
        for node in world.nodes.values():
            node.polls = True
        world.advance(3)
        controller = _stable(world)
        assert (A in controller.image.topics_by_name) is (writes == 0)
        assert (topic_id in controller.image.deletions) is (writes > 0)
        if writes:
            with pytest.raises(NoNodeError):
                world.ensemble.tree.node(znodes.topic_path(A))
            assert world.ensemble.tree.children(znodes.DELETE_TOPICS) == []
            _create(world, "a", 2, 2)


def test_deletion_in_several_writes_removes_all_nodes_of_a_topic_of_any_size() -> None:
    """For some sizes, the nodes of the topic itself do not fit in the write of its partitions."""
    with running(conditions=SMALL) as world:
        for count in range(20, 40):
            _create(world, "a", count, 2)
            topic_id = world.controller().image.topics_by_name[A].topic_id
            assert world.run(world.controller().delete_topics([topic_id])) == [None]
            assert world.ensemble.tree.children(znodes.TOPICS) == []
            assert world.ensemble.tree.children(znodes.DELETE_TOPICS) == []
        _stable(world)


def test_partitions_that_exceed_one_write_are_added() -> None:
    with running(conditions=SMALL) as world:
        _create(world, "a", 2, 2)
        controller = world.controller()
        assert world.run(controller.create_partitions([NewPartitions("a", 50)])) == [None]
        assert _stable(world).image.topics_by_name[A].partition_count == 50


def test_elections_that_exceed_one_write_reach_every_partition() -> None:
    with running(conditions=SMALL) as world:
        _create(world, "a", 60, 3)
        node = next(node for node in world.nodes.values() if not node.controller.is_active)
        world.run(node.kill())
        world.advance(25)
        _stable(world)
        assert all(node.id not in _partition(world, number).isr for number in range(60))


# --- liveness ---


def test_broker_that_does_not_poll_loses_leadership_and_gets_it_again() -> None:
    settings = ControllerSettings(balance_interval_ms=20_000)
    with running(settings=settings) as world:
        _create(world)
        node = next(node for node in world.nodes.values() if not node.controller.is_active)
        node.polls = False
        world.advance(15)
        assert world.controller().image.brokers[node.id].fenced
        assert all(_partition(world, number).leader != node.id for number in range(3))
        node.polls = True
        world.advance(3)
        assert not world.controller().image.brokers[node.id].fenced
        _stable(world)


def test_three_simultaneous_sigkills_need_no_operator() -> None:
    with running() as world:
        _create(world)
        for node in world.nodes.values():
            world.run(node.kill())
        world.advance(25)
        for node in world.nodes.values():
            world.run(node.restart())
        world.advance(30)
        controller = _stable(world)
        for number in range(3):
            partition = _partition(world, number)
            assert partition.leader != NO_LEADER
            assert not partition.leader_recovery_state
            assert len({*partition.isr, *partition.elr}) == 3 or partition.isr
        assert not any(each.fenced for each in controller.image.brokers.values())


def test_request_waits_until_the_new_leaders_have_applied_it() -> None:
    settings = ControllerSettings(apply_timeout_ms=4_000)
    with running(settings=settings) as world:
        others = [node for node in world.nodes.values() if not node.controller.is_active]
        world.advance(1)
        begin = world.clock.monotonic_ms()
        _create(world, "a", 3, 3)
        assert world.clock.monotonic_ms() - begin < 1_000
        offset = world.controller().image.offset
        leaders = {_partition(world, number).leader for number in range(3)}
        assert all(world.nodes[each].image.offset >= offset for each in leaders)
        others[0].polls = others[1].polls = False
        world.advance(1)
        begin = world.clock.monotonic_ms()
        _create(world, "b", 3, 3)
        assert world.clock.monotonic_ms() - begin >= 3_999


def test_unregistration_of_a_broker_waits_until_the_new_leaders_have_applied_it() -> None:
    settings = ControllerSettings(apply_timeout_ms=4_000)
    with running(settings=settings) as world:
        _create(world, "a", 6, 3)  # each broker follows each other one as the second replica
        first, second = (node for node in world.nodes.values() if not node.controller.is_active)
        first.polls = second.polls = False
        world.advance(1)
        begin = world.clock.monotonic_ms()
        world.run(world.controller().unregister_broker(second.id))
        assert first.id in {_partition(world, number).leader for number in range(6)}
        assert world.clock.monotonic_ms() - begin >= 3_999


def test_request_waits_until_the_broker_of_the_controller_has_applied_it() -> None:
    """The client reads its own change from the broker that has executed it."""
    with running() as world:
        active = world.active()
        assert active is not None
        for value in ("1", "2"):
            op = ConfigOp("min.insync.replicas", OpType.SET, value)
            change = ConfigChange(ResourceType.BROKER, "", (op,))
            assert world.run(active.controller.alter_configs([change])) == [None]
            assert active.image.offset == active.controller.image.offset
        active.polls = False
        world.advance(1)
        begin = world.clock.monotonic_ms()
        world.run(active.controller.alter_configs([change], validate_only=True))
        assert world.clock.monotonic_ms() == begin
        op = ConfigOp("min.insync.replicas", OpType.SET, "1")
        change = ConfigChange(ResourceType.BROKER, "", (op,))
        world.run(active.controller.alter_configs([change]))
        assert world.clock.monotonic_ms() - begin >= 4_999


# --- requests of brokers ---


def _isr_request(world: World, node: Node, number: int, *isr: BrokerId) -> AlterPartitionRequest:
    image = world.controller().image
    topic = image.topics_by_name[A]
    partition = topic.partitions[number]
    members = [alter_partition_request.BrokerState(each, image.brokers[each].epoch) for each in isr]
    data = alter_partition_request.PartitionData(
        number,
        partition.leader_epoch,
        new_isr_with_epochs=members,
        partition_epoch=partition.partition_epoch,
    )
    return AlterPartitionRequest(
        node.id, node.broker_epoch, [alter_partition_request.TopicData(topic.topic_id, [data])]
    )


def test_hazard_4_isr_is_written_by_the_controller_once() -> None:
    with running() as world:
        _create(world)
        leader = world.nodes[_partition(world).leader]
        request = _isr_request(world, leader, 0, leader.id)
        requests: ControllerRequests = BrokerRequests(world.controller())

        async def send() -> tuple[int, int]:
            response = await wait(requests.alter_partition(request))
            (partition,) = response.topics[0].partitions
            return partition.error_code, partition.partition_epoch

        assert world.run(send()) == (ErrorCode.NONE, 1)
        assert world.run(send())[0] == ErrorCode.INVALID_UPDATE_VERSION
        assert _partition(world).isr == (leader.id,)
        _stable(world)


def test_alter_partition_of_an_old_process_is_refused() -> None:
    with running() as world:
        _create(world)
        leader = world.nodes[_partition(world).leader]
        request = _isr_request(world, leader, 0, leader.id)
        request.broker_epoch -= 1

        async def send() -> int:
            requests = BrokerRequests(world.controller())
            return (await wait(requests.alter_partition(request))).error_code

        assert world.run(send()) == ErrorCode.STALE_BROKER_EPOCH


def test_e5_controlled_shutdown_moves_leaders_before_the_broker_may_stop() -> None:
    with running() as world:
        _create(world, count=6)
        node = next(node for node in world.nodes.values() if not node.controller.is_active)
        requests = BrokerRequests(world.controller())

        async def beat() -> bool:
            request = BrokerHeartbeatRequest(node.id, node.broker_epoch, want_shut_down=True)
            response = await wait(requests.broker_heartbeat(request))
            assert not response.error_code
            return response.should_shut_down

        assert not world.run(beat()), "the others have not applied the change yet"
        assert all(node.id not in _partition(world, n).isr for n in range(6))
        world.advance(1)
        assert world.run(beat())
        _stable(world)


def test_elect_leaders_returns_leadership_to_the_first_replica() -> None:
    with running() as world:
        _create(world)
        node = next(node for node in world.nodes.values() if not node.controller.is_active)
        number = next(n for n in range(3) if _partition(world, n).replicas[0] == node.id)
        node.polls = False
        world.advance(15)
        node.polls = True
        world.advance(2)
        controller = world.controller()
        results = world.run(controller.elect_leaders(Election.PREFERRED, [(A, number)]))
        error = results[A, number]
        assert error is not None
        assert error.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        leader = world.nodes[_partition(world, number).leader]
        request = _isr_request(world, leader, number, *_partition(world, number).replicas)

        async def expand() -> None:
            await wait(BrokerRequests(controller).alter_partition(request))

        world.run(expand())
        results = world.run(controller.elect_leaders(Election.PREFERRED, [(A, number)]))
        assert results == {(A, number): None}
        assert _partition(world, number).leader == node.id


@pytest.mark.parametrize("runs", [True, False])
def test_unregistered_broker_is_forgotten_until_it_starts_again(runs: bool) -> None:
    with running() as world:
        _create(world)
        node = next(node for node in world.nodes.values() if not node.controller.is_active)
        if not runs:
            world.run(node.kill())
            world.advance(25)
        world.run(world.controller().unregister_broker(node.id))
        for number in range(3):
            partition = _partition(world, number)
            assert node.id not in (partition.leader, *partition.isr, *partition.elr)
        world.advance(30)
        another = next(each for each in world.nodes.values() if each is not node)
        world.ensemble.expire(another.store.session_id)
        world.advance(10)
        controller = _stable(world)
        if another.controller.epoch == 1:  # no other controller was elected
            assert node.id not in controller.image.brokers
            with pytest.raises(KafkaError) as raised:
                world.run(controller.unregister_broker(node.id))
            assert raised.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED
        world.run(node.kill())
        world.advance(25)
        world.run(node.restart())
        world.advance(5)
        assert not _stable(world).image.brokers[node.id].fenced


def test_producer_ids_are_given_out_once_over_controllers() -> None:
    with running() as world:
        blocks = [world.run(world.controller().allocate_producer_ids()) for _ in range(2)]
        active = world.active()
        assert active is not None
        active.store.lose_next_response()
        with pytest.raises(KafkaError):
            world.run(active.controller.allocate_producer_ids())
        world.advance(3)
        blocks.append(world.run(world.controller().allocate_producer_ids(BrokerId(2))))
        assert [block.start for block in blocks] == [0, 1000, 3000]


# --- elections ---


def _sole_member(world: World) -> Node:
    """Shrink the ISR of the first partition to its leader. Return the leader."""
    leader = world.nodes[_partition(world).leader]
    request = _isr_request(world, leader, 0, leader.id)

    async def shrink() -> None:
        await wait(BrokerRequests(world.controller()).alter_partition(request))

    world.run(shrink())
    assert _partition(world).isr == (leader.id,)
    return leader


def _topic_of_others(world: World) -> None:
    """Create a topic whose first partition is led by a broker that is not the controller."""
    active = world.active()
    assert active is not None
    others = [node.id for node in world.nodes.values() if node is not active]
    topic = NewTopic("a", assignments=[(0, [*others, active.id])])
    (result,) = world.run(active.controller.create_topics([topic]))
    assert isinstance(result, CreatedTopic)


def test_unclean_election_waits_for_the_config_and_needs_no_restart() -> None:
    with running() as world:
        _topic_of_others(world)
        leader = _sole_member(world)
        world.run(leader.kill())
        world.advance(400)  # the timer of unclean elections does not elect without the config
        assert _partition(world).leader == NO_LEADER
        op = ConfigOp("unclean.leader.election.enable", OpType.SET, "true")
        change = ConfigChange(ResourceType.TOPIC, "a", (op,))
        assert world.run(world.controller().alter_configs([change])) == [None]
        world.advance(1)
        partition = _partition(world)
        assert partition.leader not in (NO_LEADER, leader.id)
        assert partition.leader_recovery_state
        assert partition.isr == (partition.leader,)
        _stable(world)


@pytest.mark.parametrize("same_boot", [True, False])
def test_sole_member_of_an_isr_that_was_killed_leads_again(same_boot: bool) -> None:
    """With a proof that it has all records cleanly, otherwise in recovery (KIP-966)."""
    with running() as world:
        _topic_of_others(world)
        leader = _sole_member(world)
        world.run(leader.kill())
        world.advance(25)
        assert _partition(world).leader == NO_LEADER
        if not same_boot:
            leader.boot_id = "another"
        world.run(leader.restart())
        world.advance(25)
        assert _partition(world).leader == leader.id
        assert bool(_partition(world).leader_recovery_state) is not same_boot
        _stable(world)


def test_e4_restart_after_the_last_directory_failed_is_unclean_also_in_the_same_boot() -> None:
    with running() as world:
        _topic_of_others(world)
        leader = _sole_member(world)
        beat = BrokerHeartbeatRequest(
            leader.id, leader.broker_epoch, offline_log_dirs=list(leader.directories)
        )

        async def fail() -> None:
            response = await wait(BrokerRequests(world.controller()).broker_heartbeat(beat))
            assert not response.error_code

        world.run(fail())
        world.run(leader.kill())
        world.advance(25)
        assert _partition(world).leader == NO_LEADER
        world.run(leader.restart())
        world.advance(25)
        assert _partition(world).leader == leader.id
        assert _partition(world).leader_recovery_state
        assert world.controller().image.brokers[leader.id].boot_id == leader.boot_id
        _stable(world)


def test_broker_that_loses_its_session_has_stopped_cleanly() -> None:
    """Its process is the same, although neither its boot id nor a file proves it."""
    with running() as world:
        _topic_of_others(world)
        leader = _sole_member(world)
        leader.boot_id = ""

        async def expire() -> None:
            world.ensemble.expire(leader.store.session_id)

        before = _partition(world).leader_epoch
        world.run(expire())
        world.advance(5)
        partition = _partition(world)
        assert partition.leader == leader.id
        assert partition.leader_epoch > before
        assert not partition.leader_recovery_state
        _stable(world)


def test_leadership_returns_to_the_first_replica_at_the_check_of_the_balance() -> None:
    with running(configs={"leader.imbalance.check.interval.seconds": "60"}) as world:
        _topic_of_others(world)
        first = world.nodes[_partition(world).leader]
        first.polls = False
        world.advance(15)
        first.polls = True
        world.advance(2)
        leader = world.nodes[_partition(world).leader]
        assert leader is not first
        request = _isr_request(world, leader, 0, *_partition(world).replicas)

        async def expand() -> None:
            await wait(BrokerRequests(world.controller()).alter_partition(request))

        world.run(expand())
        world.advance(61)
        assert _partition(world).leader == first.id
        _stable(world)


def test_replica_in_a_failed_directory_loses_its_leadership() -> None:
    with running() as world:
        _topic_of_others(world)
        leader = world.nodes[_partition(world).leader]
        controller = world.controller()
        topic_id = controller.image.topics_by_name[A].topic_id
        failed = Uuid(b"f" * 16)
        leader.directories += (failed,)
        world.run(leader.kill())
        world.run(leader.restart())
        world.advance(25)
        world.run(world.controller().elect_leaders(Election.PREFERRED, None))
        requests = BrokerRequests(world.controller())
        assign = AssignReplicasToDirsRequest(
            leader.id,
            leader.broker_epoch,
            [
                assign_replicas_to_dirs_request.DirectoryData(
                    failed,
                    [
                        assign_replicas_to_dirs_request.TopicData(
                            topic_id, [assign_replicas_to_dirs_request.PartitionData(0)]
                        )
                    ],
                )
            ],
        )

        async def send() -> None:
            response = await wait(requests.assign_replicas_to_dirs(assign))
            assert not response.error_code
            assert not response.directories[0].topics[0].partitions[0].error_code
            beat = BrokerHeartbeatRequest(leader.id, leader.broker_epoch, offline_log_dirs=[failed])
            assert not (await wait(requests.broker_heartbeat(beat))).error_code

        world.run(send())
        assert failed in _partition(world).directories
        partition = _partition(world)
        assert leader.id not in (partition.leader, *partition.isr)
        assert not world.controller().image.brokers[leader.id].fenced
        _stable(world)


def test_replica_that_is_reported_in_a_directory_that_is_not_online_loses_its_leadership() -> None:
    with running() as world:
        _topic_of_others(world)
        leader = world.nodes[_partition(world).leader]
        topic_id = world.controller().image.topics_by_name[A].topic_id
        lost = Uuid(b"l" * 16)

        def assign(directory: Uuid) -> None:
            call = world.controller().assign_directories(
                leader.id, leader.broker_epoch, {(topic_id, 0): directory}
            )
            assert world.run(call) == {(topic_id, 0): ErrorCode.NONE}

        before = _partition(world)
        assign(lost)
        after = _partition(world)
        assert leader.id not in (after.leader, *after.isr)
        assert after.leader_epoch == before.leader_epoch + 1
        assert after.partition_epoch == before.partition_epoch + 1
        assign(leader.directories[0])
        assert _partition(world).leader_epoch == after.leader_epoch
        _stable(world)
