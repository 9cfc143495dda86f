"""Faults inside of the controller, and foreign writes to its nodes: none leaves it wedged."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from odradek.controller.alter_partition import AlterPartition
from odradek.controller.broker_requests import BrokerRequests
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, Uuid
from odradek.metadata import znodes
from odradek.metadata.image import NO_LEADER
from odradek.metadata.quotas import (
    CLIENT_ID,
    PRODUCER_BYTE_RATE,
    USER,
    Entity,
    QuotaAlteration,
)
from odradek.metadata.store.interface import Node as StoreNode
from odradek.metadata.store.interface import SessionState
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.topic_changes import NewTopic
from odradek.protocol.messages.alter_partition_request import AlterPartitionRequest
from odradek.result_tasks import wait
from tests.controller.cluster_nodes import Node, World
from tests.controller.test_cluster_controller import (
    A,
    _create,
    _isr_request,
    _partition,
    _stable,
    running,
)


async def _foreign_store(world: World) -> MemoryStore:
    store = MemoryStore(world.ensemble, timers=world.timers)
    await store.open()
    return store


def test_broker_contends_only_in_a_session_in_which_it_is_registered() -> None:
    """Other brokers find the address of a controller by its registration."""
    with running(1) as world:
        node = world.nodes[BrokerId(1)]
        opened, epoch = node._opened, world.controller().epoch

        async def unregistered(_: MemoryStore) -> None:
            pass

        node._opened = unregistered  # type: ignore[method-assign]
        world.ensemble.expire(node.store.session_id)
        world.advance(60)
        assert node.store.state is SessionState.CONNECTED
        assert not world.ensemble.tree.find(znodes.CONTROLLER)
        world.run(opened(node.store))
        world.advance(2)
        assert world.controller().epoch == epoch + 1


def test_change_that_was_not_published_ends_the_term() -> None:
    """The feed would lack a change that is in the store. The next term begins with the store."""
    with running() as world:
        controller = world.controller()
        epoch = controller.epoch

        def failing(*_: Any) -> Generator[None, None, None]:
            raise ValueError("wrong")
            yield

        publishing = controller.feed.publishing
        controller.feed.publishing = failing  # type: ignore[method-assign]

        async def create() -> None:
            with pytest.raises(KafkaError) as raised:
                await controller.create_topics([NewTopic("a", 1, 3)])
            assert raised.value.code is ErrorCode.NOT_CONTROLLER

        world.run(create())
        assert not controller.is_active
        controller.feed.publishing = publishing  # type: ignore[method-assign]
        world.advance(3)
        assert _stable(world).epoch > epoch
        assert A in world.controller().image.topics_by_name


def test_state_that_another_program_wrote_is_read_again() -> None:
    """The image of the brokers has the position of the store, but not what is in it."""
    with running() as world:
        _create(world)

        async def write() -> None:
            store = await _foreign_store(world)
            path = znodes.state_path(A, 0)
            node: StoreNode = await store.get(path)
            await store.set(path, node.data)
            await store.close()

        world.run(write())
        world.ensemble.violations.clear()  # the write is not one of a controller
        partition = _partition(world)
        leader = world.nodes[partition.leader]

        async def shrink() -> None:
            controller = world.controller()
            now = controller.image.topics_by_name[A]
            isr = ((leader.id, leader.broker_epoch),)
            epoch = now.partitions[0].partition_epoch
            change = AlterPartition(leader.id, leader.broker_epoch, 0, epoch, isr)
            await controller.alter_partitions(
                leader.id, leader.broker_epoch, [(now.topic_id, 0, change)]
            )

        with pytest.raises(KafkaError) as raised:
            world.run(shrink())
        assert raised.value.code is ErrorCode.NOT_CONTROLLER
        world.advance(3)
        assert _partition(world).partition_epoch == partition.partition_epoch + 1
        world.run(shrink())
        assert _partition(world).isr == (leader.id,)
        _stable(world)


@pytest.mark.parametrize("name", ["absent", "a"])
def test_mark_of_a_deletion_that_the_controller_did_not_make_is_removed(name: str) -> None:
    """Kafka's old tools request a deletion so. Only a recorded deletion deletes."""
    with running() as world:
        _create(world)
        epoch = world.controller().epoch

        async def mark() -> None:
            store = await _foreign_store(world)
            await store.create(f"{znodes.DELETE_TOPICS}/{name}", b"")
            await store.delete(znodes.CONTROLLER)
            await store.close()

        world.run(mark())
        world.ensemble.violations.clear()  # the write is not one of a controller
        world.advance(5)
        controller = _stable(world)
        assert controller.epoch == epoch + 1, "the first take-over has succeeded"
        assert A in controller.image.topics_by_name
        assert not world.ensemble.tree.children(znodes.DELETE_TOPICS)


@pytest.mark.parametrize("name", ["01", "²", "x", "-1"])
def test_node_whose_name_is_no_broker_id_is_ignored(name: str) -> None:
    with running() as world:

        async def register() -> MemoryStore:
            store = await _foreign_store(world)
            data = (await store.get(f"{znodes.BROKER_IDS}/1")).data
            await store.create(f"{znodes.BROKER_IDS}/{name}", data, ephemeral=True)
            return store

        store = world.run(register())
        active = world.active()
        assert active is not None
        world.run(active.kill())
        world.advance(25)
        controller = _stable(world)
        assert set(controller.image.brokers) == {1, 2, 3}
        assert controller.image.brokers[BrokerId(1)].fenced is (active.id == 1)
        world.run(store.close())


@pytest.mark.parametrize(
    "changes",
    [
        {"rack": 5},
        {"boot_id": 5},
        {"endpoints": ["PLAINTEXT://h:99999"]},
        {"features": {"f": {"min_version": 0, "max_version": 99_999}}},
        {"directories": ["AAAA"]},
    ],
)
def test_znode_with_values_that_no_record_can_have_is_refused(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with running(2) as world:

        async def register() -> None:
            store = await _foreign_store(world)
            value = znodes.decode((await store.get(f"{znodes.BROKER_IDS}/1")).data)
            data = znodes.encode({**value, **changes})
            await store.create(f"{znodes.BROKER_IDS}/9", data, ephemeral=True)
            await asyncio.sleep(2)
            await store.close()

        epoch = world.controller().epoch
        world.run(register())
        controller = _stable(world)
        assert controller.epoch == epoch
        assert set(controller.image.brokers) == {1, 2}
        assert "broker 9 is not registered" in caplog.text


def test_broker_without_a_working_directory_loses_its_leaderships() -> None:
    with running() as world:
        _create(world)
        node = world.nodes[BrokerId(2)]
        assert any(_partition(world, number).leader == 2 for number in range(3))

        async def report() -> None:
            await world.controller().broker_heartbeat(
                node.id, node.broker_epoch, failed_directories=node.directories
            )

        world.run(report())
        for number in range(3):
            assert 2 not in (_partition(world, number).leader, *_partition(world, number).isr)
        _stable(world)


def test_broker_that_restarts_with_an_empty_directory_does_not_lead_others_with_records() -> None:
    """It was the last member of the ISR, and nothing of its log is left."""
    with running() as world:
        _create(world, count=1)
        leader = world.nodes[_partition(world).leader]
        if leader.controller.is_active:
            world.run(leader.kill())
            world.advance(25)
            world.run(leader.restart())
            world.advance(3)
            leader = world.nodes[_partition(world).leader]
        controller, partition = world.controller(), _partition(world)
        change = AlterPartition(
            leader.id,
            leader.broker_epoch,
            partition.leader_epoch,
            partition.partition_epoch,
            ((leader.id, leader.broker_epoch),),
        )
        topic_id = controller.image.topics_by_name[A].topic_id
        world.run(
            controller.alter_partitions(leader.id, leader.broker_epoch, [(topic_id, 0, change)])
        )
        world.run(leader.kill())
        world.advance(25)
        leader.directories = (Uuid(b"n" * 16),)
        world.run(leader.restart())
        world.advance(5)
        assert _partition(world).leader == NO_LEADER
        assert not _partition(world).last_known_elr
        _stable(world)


SCRAM = {"SCRAM-SHA-256": "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"}


def test_credentials_in_the_node_of_a_user_are_kept() -> None:
    """Kafka's SCRAM credentials and the quotas of a user are in one node."""
    path = "/config/users/u"
    entity = ((USER, "u"),)

    with running() as world:

        async def configs() -> dict[str, str] | None:
            store = await _foreign_store(world)
            node = await store.get(path)
            await store.close()
            return znodes.decode_configs(node.data)

        async def create() -> None:
            store = await _foreign_store(world)
            await store.create(path, znodes.encode_configs(SCRAM))
            await store.close()

        def alter(rate: float | None, entity: Entity = entity) -> None:
            change = QuotaAlteration(entity, [(PRODUCER_BYTE_RATE, rate)])
            results = world.run(world.controller().alter_client_quotas([change]))
            assert list(results.values()) == [None]

        world.run(create())
        world.ensemble.violations.clear()  # the write is not one of a controller
        alter(1_000)
        assert world.run(configs()) == {**SCRAM, PRODUCER_BYTE_RATE: "1000"}
        alter(2_000)
        alter(5, ((CLIENT_ID, "c"), (USER, "u")))
        assert world.run(configs()) == {**SCRAM, PRODUCER_BYTE_RATE: "2000"}
        active = world.active()
        assert active is not None
        active.controller._must_load = True
        world.ensemble.expire(active.store.session_id)
        world.advance(5)
        assert _stable(world).image.client_quotas[entity] == {PRODUCER_BYTE_RATE: 2_000}
        alter(None)
        alter(None, ((CLIENT_ID, "c"), (USER, "u")))
        assert world.run(configs()) == SCRAM
        assert not _stable(world).image.client_quotas


@pytest.mark.parametrize("is_current", [True, False])
@pytest.mark.parametrize("path", [znodes.METADATA, znodes.topic_path(A), znodes.CONTROLLER_EPOCH])
def test_take_over_names_the_znode_that_is_not_json(
    path: str,
    is_current: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No controller takes over until an administrator has restored the node."""
    with running() as world:
        _create(world)
        if not is_current:
            for node in world.nodes.values():
                node.controller._must_load = True

        async def write(data: bytes, *, resigns: bool) -> None:
            store = await _foreign_store(world)
            await store.set(path, data)
            if resigns:
                await store.delete(znodes.CONTROLLER)
            await store.close()

        before = world.ensemble.tree.node(path).data
        with monkeypatch.context() as patched:
            patched.setattr(world.ensemble, "_check", lambda *_: None)
            patched.setattr(world.ensemble, "_epoch", lambda: 0)
            world.run(write(b"not JSON", resigns=True))
            world.advance(5)
            is_read = path != znodes.topic_path(A) or not is_current
            assert (world.active() is None) is is_read
            assert (f"the node {path} of the metadata store is not valid" in caplog.text) is is_read
            assert "bug in the event" not in caplog.text
            world.run(write(before, resigns=False))
            world.advance(5)
        assert world.active() is not None
        world.ensemble.violations.clear()  # the writes are not those of a controller


@pytest.mark.parametrize("name", ["min.insync.replicas", "retention.ms"])
def test_override_that_is_not_valid_prevents_no_take_over(name: str) -> None:
    """Another program has written it. The minimum of the cluster applies, as on the brokers."""
    with running() as world:
        _create(world)
        for node in world.nodes.values():
            node.controller._must_load = True

        async def write() -> None:
            store = await _foreign_store(world)
            path = znodes.topic_config_path(A)
            content = znodes.encode_configs({name: "abc", "segment.bytes": "3000000"})
            await store.create(path, content)
            await store.delete(znodes.CONTROLLER)
            await store.close()

        epoch = world.controller().epoch
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(world.ensemble, "_check", lambda *_: None)
            world.run(write())
            world.advance(5)
        assert world.controller().epoch > epoch
        assert world.controller().image.topic_configs[A][name] == "abc"
        minimum = world.controller()._policies.of(world.controller().image)(A).min_insync_replicas
        assert minimum == 1
        world.ensemble.violations.clear()  # the write is not one of a controller


@pytest.mark.parametrize("is_same_process", [True, False])
def test_e4_follower_that_registers_again_before_the_leader_is_gone_leads(
    is_same_process: bool,
) -> None:
    """The next controller finds both changes at its take-over. The follower has all records."""
    with running() as world:
        active = world.active()
        assert active is not None
        follower = next(each for each in world.nodes.values() if each is not active)
        topic = NewTopic("a", -1, -1, assignments=[(0, [active.id, follower.id])])
        world.run(world.controller().create_topics([topic]))
        world.advance(3)
        assert (_partition(world).leader, len(_partition(world).isr)) == (active.id, 2)
        world.run(active.kill())
        world.advance(2)
        session_id = follower.store.session_id
        if not is_same_process:
            follower.clean_epoch = follower.broker_epoch
            world.run(follower.kill())
        world.ensemble.expire(session_id)
        if not is_same_process:
            world.run(follower.restart())
        world.advance(60)
        after = _partition(world)
        assert (after.leader, after.isr, after.elr) == (follower.id, (follower.id,), ())
        assert not after.leader_recovery_state
        active.boot_id = "booted again"
        world.run(active.restart())
        world.advance(20)
        assert _partition(world) == after
        _stable(world)


def test_session_that_breaks_after_the_last_read_of_a_take_over_loses_no_broker() -> None:
    """The watch of the brokers has ended, although the session is connected again."""
    with running() as world:
        first = world.active()
        assert first is not None
        others = [node for node in world.nodes.values() if node is not first]
        broken: list[Node] = []
        for node in others:
            get_many = node.store.get_many

            async def breaks(
                paths: Sequence[str], node: Node = node, get_many: Any = get_many
            ) -> object:
                found = await get_many(paths)
                if not broken and any(each.startswith(znodes.BROKER_IDS) for each in paths):
                    broken.append(node)
                    node.store.disconnect()
                    await asyncio.sleep(0.1)
                    await node.store.connected()
                return found

            node.store.get_many = breaks  # type: ignore[method-assign,assignment]
        world.run(first.kill())
        world.advance(25)
        assert broken
        world.run(first.restart())
        world.advance(5)
        registration = _stable(world).image.brokers[first.id]
        assert not registration.fenced
        assert registration.epoch == first.broker_epoch


def test_alter_partition_with_an_unknown_recovery_state_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running() as world:
        _create(world)
        leader = world.nodes[_partition(world).leader]
        offset = world.controller().image.offset
        for state in (-1, 2, 127):
            request = _isr_request(world, leader, 0, leader.id)
            request.topics[0].partitions[0].leader_recovery_state = state
            requests = BrokerRequests(world.controller())

            async def send(
                requests: BrokerRequests = requests, request: AlterPartitionRequest = request
            ) -> int:
                return (await wait(requests.alter_partition(request))).error_code

            assert world.run(send()) == ErrorCode.UNKNOWN_SERVER_ERROR
            assert f"there is no leader recovery state {state}" in caplog.text
        assert world.controller().image.offset == offset
        _stable(world)
