"""The registration of a broker in sessions that break, expire and lose responses at random."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.broker_lifecycle import BrokerLifecycle
from odradek.environment.timers import LoopTimers
from odradek.errors import ErrorCode, KafkaError
from odradek.ids import BrokerId, Uuid
from odradek.metadata import znodes
from odradek.metadata.image import UNKNOWN_BROKER_EPOCH, BrokerRegistration, Endpoint
from odradek.metadata.store.ensemble import EnsembleConditions, MemoryEnsemble
from odradek.metadata.store.interface import (
    Created,
    NodeExistsError,
    NoNodeError,
    SessionLostError,
    SessionState,
    StoreFailure,
)
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.store.resolution import CREATE_ATTEMPTS_MAX
from tests.controller.cluster_nodes import LoopClock
from tests.helpers.seeded_randomness import SeededRandomness
from tests.helpers.virtual_loop import VirtualLoop

NODE_ID = BrokerId(7)
PATH = f"{znodes.BROKER_IDS}/{NODE_ID}"
SESSION_TIMEOUT_MS = 6_000
QUIET_S = 60.0
"""Time without faults after which every broker is registered."""
CONDITIONS = EnsembleConditions(
    servers=3,
    session_timeout_ms=SESSION_TIMEOUT_MS,
    lag_ms=(0, 200),
    latency_ms=(0, 20),
    notice_ms=(0, 500),
    reconnect_ms=(0, 1_000),
)


class LosingStore(MemoryStore):
    """A store that can lose its session before a call continues with its response."""

    losses = 0

    def __init__(self, ensemble: MemoryEnsemble, *, timers: LoopTimers) -> None:
        super().__init__(ensemble, timers=timers)
        self._expire = ensemble.expire

    async def create(self, *arguments: Any, **options: Any) -> Created:
        created = await super().create(*arguments, **options)
        if self.losses:
            self.losses -= 1
            self._expire(self.session_id)
            while self.state is not SessionState.LOST:  # noqa: ASYNC110 - the ensemble's timers
                await asyncio.sleep(0.01)
        return created


class VanishingStore(MemoryStore):
    """A store in which nodes exist at their creation, and have vanished when they are read."""

    vanishing = 0

    async def create(self, *arguments: Any, **options: Any) -> Created:
        if self.vanishing:
            self.vanishing -= 1
            raise NodeExistsError(arguments[0])
        return await super().create(*arguments, **options)


class FailingStore(MemoryStore):
    """A store whose next sessions cannot begin."""

    failures = 0

    async def open(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreFailure("no connection")
        await super().open()


class BrokenStore(MemoryStore):
    """A store whose next session begins, but then no thread can be started for it."""

    is_broken = False

    async def open(self) -> None:
        await super().open()
        if self.is_broken:
            raise RuntimeError("can't start new thread")


class SlowStore(MemoryStore):
    """A store whose sessions begin slowly, one at a time."""

    is_opening = False

    async def open(self) -> None:
        assert not self.is_opening
        self.is_opening = True
        await asyncio.sleep(3)
        await super().open()
        self.is_opening = False


class Broker:
    """One process of the broker: its session and its lifecycle."""

    def __init__(self, world: World, kind: type[MemoryStore] = MemoryStore) -> None:
        world.processes += 1
        self.store = kind(world.ensemble, timers=world.timers)
        self.failures: list[Exception] = []
        self.epochs: list[int] = []
        """The epochs of the registrations."""
        self.lifecycle = BrokerLifecycle(
            self.store,
            NODE_ID,
            clock=LoopClock(asyncio.get_running_loop()),
            timers=world.timers,
            check_store=self._check,
            registered=self._registered,
            failed=self.failures.append,
        )
        endpoint = Endpoint("PLAINTEXT", "host", 9092)
        self.registration = BrokerRegistration(
            NODE_ID,
            endpoint.host,
            endpoint.port,
            listeners=(endpoint,),
            incarnation_id=Uuid(bytes([world.processes]) * 16),
        )

    def _registered(self) -> None:
        self.epochs.append(self.lifecycle.broker_epoch)

    async def _check(self) -> None:
        await self.store.get(znodes.BROKER_IDS)

    async def claim(self) -> None:
        """Claim the id, as a start does before it uses the log directories."""
        await self.lifecycle.await_id(SESSION_TIMEOUT_MS * 3)
        await self.lifecycle.claim_id(SESSION_TIMEOUT_MS * 3)

    async def start(self, clean_shutdown_epoch: int = -1) -> None:
        await self.lifecycle.open()
        await self.claim()
        await self.lifecycle.register(self.registration, clean_shutdown_epoch)

    async def kill(self) -> None:
        """End the process. Its session lasts until its timeout."""
        self.store.abandon()
        await self.lifecycle.close()


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.timers = LoopTimers()
        self.ensemble = MemoryEnsemble(
            CONDITIONS, randomness=SeededRandomness(seed), timers=self.timers
        )
        self.processes = 0

    async def prepare(self) -> None:
        store = MemoryStore(self.ensemble, timers=self.timers)
        await store.open()
        await store.create("/brokers")
        await store.create(znodes.BROKER_IDS)
        await store.create("/odradek")
        await store.create(znodes.STARTS)
        await store.close()

    async def check_registered(self, broker: Broker) -> int:
        """Check that the only node is the one of the broker's session. Return its epoch."""
        assert not broker.failures
        assert broker.store.state is SessionState.CONNECTED
        await broker.store.sync()
        node = await broker.store.get(PATH)
        assert node.stat.ephemeral_owner == broker.store.session_id
        assert node.stat.czxid == broker.lifecycle.broker_epoch
        assert broker.lifecycle.registered_epoch == broker.epochs[-1] == node.stat.czxid
        return node.stat.czxid


def run(seed: int, test: Callable[[World], Awaitable[None]]) -> None:
    loop = VirtualLoop()

    async def main() -> None:
        world = World(seed)
        await world.prepare()
        await test(world)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


PAUSES_S = (0.0, 0.01, 0.3, 2.0, 8.0)


async def faults(world: World, broker: Broker, count: int) -> None:
    """Break, expire and block the session, and lose requests and responses of its writes."""
    for _ in range(count):
        session_id = broker.store.session_id
        if broker.store.state is not SessionState.CLOSED:
            fault = world.random.randrange(5)
            if fault == 0:
                broker.store.disconnect()
            elif fault == 1:
                broker.store.lose_next_response()
            elif fault == 2:
                broker.store.lose_next_request()
            elif fault == 3:
                world.ensemble.expire(session_id)
            else:
                with contextlib.suppress(SessionLostError):  # it has expired already
                    world.ensemble.block(session_id)
                    await asyncio.sleep(world.random.choice(PAUSES_S))
                    world.ensemble.unblock(session_id)
        await asyncio.sleep(world.random.choice(PAUSES_S))


@pytest.mark.parametrize("seed", range(30))
def test_hazard_2_a_broker_registers_again_after_any_faults_of_its_session(seed: int) -> None:
    async def test(world: World) -> None:
        broker = Broker(world)
        await broker.start()
        epochs = [await world.check_registered(broker)]
        for _ in range(5):
            await faults(world, broker, 6)
            await asyncio.sleep(QUIET_S)
            epochs.append(await world.check_registered(broker))
        assert epochs == sorted(epochs)
        await broker.lifecycle.close()

    run(seed, test)


@pytest.mark.parametrize("seed", range(10))
def test_a_start_continues_after_the_loss_of_the_connection_or_of_the_session(seed: int) -> None:
    async def test(world: World) -> None:
        broker = Broker(world)
        await broker.lifecycle.open()
        for fault in (broker.store.disconnect, lambda: expire(world, broker)):
            fault()
            with pytest.raises(StoreFailure):
                while True:
                    await broker.lifecycle.await_id(0)
            await broker.lifecycle.connect_again()
            assert broker.store.state is SessionState.CONNECTED
        await broker.lifecycle.await_id(0)
        await broker.lifecycle.register(broker.registration)
        await world.check_registered(broker)
        await broker.lifecycle.close()

    def expire(world: World, broker: Broker) -> None:
        world.ensemble.expire(broker.store.session_id)

    run(seed, test)


def test_each_node_of_a_process_has_the_proof_of_a_clean_stop_until_no_directory_works() -> None:
    """The first session may end before a controller has read its node."""

    async def test(world: World) -> None:
        broker = Broker(world)
        await broker.start(clean_shutdown_epoch=77)
        for epoch in (77, 77, UNKNOWN_BROKER_EPOCH):
            await world.check_registered(broker)
            node = await broker.store.get(PATH)
            assert znodes.decode_clean_shutdown_epoch(node.data) == epoch
            if len(broker.epochs) == 2:
                broker.lifecycle.last_directory_failed()
            world.ensemble.expire(broker.store.session_id)
            await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 * 3)
        await broker.kill()

    run(1, test)


def test_e4_registration_after_a_directory_has_failed_has_no_boot_id() -> None:
    """The process may be killed before it has reported the replicas of the directory."""

    async def test(world: World) -> None:
        one, two = Uuid(bytes([1]) * 16), Uuid(bytes([2]) * 16)
        broker = Broker(world)
        broker.registration = replace(broker.registration, directories=(one, two), boot_id="boot")
        await broker.start()
        for directories, boot_id in (((one, two), "boot"), ((one,), "")):
            await world.check_registered(broker)
            node = await broker.store.get(PATH)
            found = znodes.decode_broker(NODE_ID, node.data, node.stat.czxid)
            assert (found.directories, found.boot_id) == (directories, boot_id)
            broker.lifecycle.directory_failed(two)
            world.ensemble.expire(broker.store.session_id)
            await asyncio.sleep(SESSION_TIMEOUT_MS / 1000 * 3)
        await broker.kill()

    run(1, test)


@pytest.mark.parametrize("seed", range(30))
def test_hazard_6_a_new_process_waits_for_the_session_of_the_one_that_was_killed(seed: int) -> None:
    async def test(world: World) -> None:
        epoch = -1
        for _ in range(6):
            broker = Broker(world)
            await broker.start()
            assert await world.check_registered(broker) > epoch
            await faults(world, broker, world.random.randrange(4))
            epoch = broker.lifecycle.registered_epoch
            if world.random.randrange(2):
                await broker.kill()
            else:
                await broker.lifecycle.close()
            assert broker.lifecycle.broker_epoch == -1
        assert not broker.failures

    run(seed, test)


@pytest.mark.parametrize("seed", range(10))
def test_hazard_6_a_second_process_with_the_id_is_refused(seed: int) -> None:
    async def test(world: World) -> None:
        first, second = Broker(world), Broker(world)
        await first.start()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(KafkaError) as refused:
            await second.start()
        assert 3 * SESSION_TIMEOUT_MS <= 1000 * (loop.time() - began_s) < 3.5 * SESSION_TIMEOUT_MS
        assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await second.lifecycle.close()
        await world.check_registered(first)
        await first.lifecycle.close()

    run(seed, test)


def test_hazard_6_one_of_two_processes_that_start_together_is_refused_before_it_loads() -> None:
    async def test(world: World) -> None:
        brokers = [Broker(world), Broker(world)]
        await asyncio.gather(*(each.lifecycle.open() for each in brokers))
        claimed = await asyncio.gather(*(each.claim() for each in brokers), return_exceptions=True)
        (refused,) = [each for each in claimed if each is not None]
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert "by another process" in refused.message
        first = brokers[claimed.index(None)]
        await first.lifecycle.register(first.registration)
        await world.check_registered(first)
        for each in brokers:
            await each.lifecycle.close()

    for seed in range(10):
        run(seed, test)


def test_hazard_6_a_process_that_loses_its_session_while_it_starts_claims_the_id_again() -> None:
    async def test(world: World) -> None:
        broker = Broker(world)
        await broker.lifecycle.open()
        await broker.claim()
        await broker.claim()
        world.ensemble.expire(broker.store.session_id)
        with pytest.raises(StoreFailure):
            while True:
                await broker.lifecycle.await_id(0)
        await broker.lifecycle.connect_again()
        await broker.claim()
        node = await broker.store.get(f"{znodes.STARTS}/{NODE_ID}")
        assert node.stat.ephemeral_owner == broker.store.session_id
        await broker.lifecycle.close()

    for seed in range(10):
        run(seed, test)


async def claimed_by(world: World, broker: Broker) -> None:
    """Wait until the session of the broker has the claim."""
    for _ in range(1_000):
        await asyncio.sleep(0.1)
        with contextlib.suppress(NoNodeError, StoreFailure):
            node = await broker.store.get(f"{znodes.STARTS}/{NODE_ID}")
            if node.stat.ephemeral_owner == broker.store.session_id:
                return
    raise AssertionError("not claimed")


@pytest.mark.parametrize("kind", [MemoryStore, LosingStore])
def test_hazard_6_a_process_that_loses_its_session_while_it_loads_keeps_the_id(
    kind: type[MemoryStore],
) -> None:
    async def test(world: World) -> None:
        first, second = Broker(world, kind), Broker(world)
        await first.lifecycle.open()
        await first.claim()
        await second.lifecycle.open()
        session_id = first.store.session_id
        for _ in range(3):
            world.ensemble.expire(first.store.session_id)
            first.store.disconnect()
            if isinstance(first.store, LosingStore):
                first.store.losses = 2  # the next sessions are lost when the claim returns
            await claimed_by(world, first)
            assert first.store.session_id != session_id
            await asyncio.sleep(QUIET_S)
            with pytest.raises(KafkaError, match="is in use"):
                await second.lifecycle.claim_id(1_000)
        assert not first.failures
        await first.lifecycle.register(first.registration)
        await world.check_registered(first)
        for each in (first, second):
            await each.lifecycle.close()

    for seed in range(5):
        run(seed, test)


@pytest.mark.parametrize("loading_s", [0, 3])
def test_hazard_6_a_process_whose_claim_was_taken_while_it_loads_ends(loading_s: int) -> None:
    """It notices the loss of its session when it registers, or before."""

    async def test(world: World) -> None:
        first, second = Broker(world, FailingStore), Broker(world)
        await first.lifecycle.open()
        await first.claim()
        await second.lifecycle.open()
        assert isinstance(first.store, FailingStore)
        first.store.failures = 20
        world.ensemble.expire(first.store.session_id)
        first.store.disconnect()
        await second.claim()
        await asyncio.sleep(loading_s)
        with pytest.raises(KafkaError, match="is in use by another process"):
            await first.lifecycle.register(first.registration)
        assert len(first.failures) == bool(loading_s)
        await second.lifecycle.register(second.registration)
        await world.check_registered(second)
        for each in (first, second):
            await each.lifecycle.close()

    for seed in range(5):
        run(seed, test)


def test_a_start_without_the_node_of_claims_in_its_next_session_ends() -> None:
    """The store was changed, so waiting does not help."""

    async def test(world: World) -> None:
        broker, other = Broker(world), Broker(world)
        await broker.lifecycle.open()
        await broker.claim()
        await other.lifecycle.open()
        world.ensemble.expire(broker.store.session_id)
        await asyncio.sleep(0)
        while await other.store.children(znodes.STARTS):  # noqa: ASYNC110 - the timers
            await asyncio.sleep(0.001)
        await other.store.delete(znodes.STARTS, -1)
        broker.store.disconnect()
        await asyncio.sleep(QUIET_S)
        (error,) = broker.failures
        assert isinstance(error, KafkaError)
        with pytest.raises(KafkaError, match="has no node /odradek/starts"):
            await broker.lifecycle.register(broker.registration)
        for each in (broker, other):
            await each.lifecycle.close()

    run(0, test)


@pytest.mark.parametrize("is_registered", [True, False])
def test_a_broker_that_cannot_begin_another_session_stops(is_registered: bool) -> None:
    """Otherwise it would run without a registration, and nothing would try again."""

    async def test(world: World) -> None:
        broker = Broker(world, BrokenStore)
        assert isinstance(broker.store, BrokenStore)
        await broker.lifecycle.open()
        await broker.claim()
        if is_registered:
            await broker.lifecycle.register(broker.registration)
        broker.store.is_broken = True
        world.ensemble.expire(broker.store.session_id)
        broker.store.disconnect()
        await asyncio.sleep(QUIET_S)
        (error,) = broker.failures
        assert isinstance(error, RuntimeError)
        if not is_registered:
            with pytest.raises(RuntimeError, match="can't start"):
                await broker.lifecycle.register(broker.registration)
        await broker.lifecycle.close()

    run(0, test)


def test_a_process_that_stops_while_it_claims_its_id_again_ends() -> None:
    async def test(world: World) -> None:
        broker = Broker(world, FailingStore)
        await broker.lifecycle.open()
        await broker.claim()
        assert isinstance(broker.store, FailingStore)
        broker.store.failures = 1_000_000
        world.ensemble.expire(broker.store.session_id)
        broker.store.disconnect()
        await asyncio.sleep(QUIET_S)
        await broker.lifecycle.close()
        assert not broker.failures
        assert not world.ensemble._sessions

    run(0, test)


def test_hazard_6_a_process_that_is_registered_by_the_time_of_the_claim_keeps_the_id() -> None:
    """It has lost its session, and has registered again without a claim."""

    async def test(world: World) -> None:
        first, second = Broker(world), Broker(world)
        await second.lifecycle.open()
        await second.lifecycle.await_id(0)
        await first.lifecycle.open()
        await first.lifecycle.await_id(0)
        await first.lifecycle.register(first.registration)
        with pytest.raises(KafkaError, match="by the broker at host:9092"):
            await second.lifecycle.claim_id(1_000)
        await second.lifecycle.close()
        await world.check_registered(first)
        await first.lifecycle.close()

    for seed in range(10):
        run(seed, test)


@pytest.mark.parametrize("losses", [1, 2])
def test_hazard_2_a_session_that_is_lost_when_the_registration_returns_does_not_count(
    losses: int,
) -> None:
    async def test(world: World) -> None:
        broker = Broker(world, LosingStore)
        assert isinstance(broker.store, LosingStore)
        await broker.lifecycle.open()
        await broker.claim()
        broker.store.losses = losses
        await broker.lifecycle.register(broker.registration)
        first = await world.check_registered(broker)
        broker.store.losses = losses
        world.ensemble.expire(broker.store.session_id)
        broker.store.disconnect()
        await asyncio.sleep(QUIET_S)
        assert not broker.store.losses
        assert await world.check_registered(broker) > first
        await broker.lifecycle.close()

    for seed in range(5):
        run(seed, test)


def test_hazard_2_a_broker_keeps_its_registration_while_its_connection_is_broken() -> None:
    async def test(world: World) -> None:
        broker = Broker(world)
        await broker.start()
        epoch = broker.lifecycle.broker_epoch
        states: list[tuple[SessionState, int]] = []
        broker.store.subscribe(lambda state: states.append((state, broker.lifecycle.broker_epoch)))
        broker.store.disconnect()
        await asyncio.sleep(QUIET_S)
        assert states == [(SessionState.SUSPENDED, epoch), (SessionState.CONNECTED, epoch)]
        assert await world.check_registered(broker) == epoch
        await broker.lifecycle.close()

    for seed in range(5):
        run(seed, test)


def test_a_broker_begins_sessions_until_one_of_them_begins() -> None:
    """The store cannot be reached for some time after the loss of a session."""

    async def test(world: World) -> None:
        broker = Broker(world, FailingStore)
        assert isinstance(broker.store, FailingStore)
        await broker.start()
        broker.store.failures = 3
        world.ensemble.expire(broker.store.session_id)
        broker.store.disconnect()
        await asyncio.sleep(QUIET_S)
        assert not broker.store.failures
        await world.check_registered(broker)
        await broker.lifecycle.close()

    for seed in range(5):
        run(seed, test)


def test_hazard_6_the_node_of_the_registration_before_is_replaced_at_once() -> None:
    """The client has given its session up, which ZooKeeper keeps until its timeout."""

    async def test(world: World) -> None:
        broker = Broker(world)
        await broker.start()
        epoch = broker.lifecycle.broker_epoch
        loop = asyncio.get_running_loop()
        for _ in range(3):
            began_s = loop.time()
            broker.store.abandon()
            broker.store._change_session(SessionState.LOST)
            while broker.lifecycle.broker_epoch == -1:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.05)
            assert 1000 * (loop.time() - began_s) < SESSION_TIMEOUT_MS
            renewed = await world.check_registered(broker)
            assert renewed > epoch
            epoch = renewed
        await asyncio.sleep(QUIET_S)
        assert await world.check_registered(broker) == epoch
        await broker.lifecycle.close()

    for seed in range(5):
        run(seed, test)


def test_hazard_6_a_node_of_another_session_that_vanishes_is_no_reason_to_refuse() -> None:
    async def test(world: World) -> None:
        broker = Broker(world, VanishingStore)
        assert isinstance(broker.store, VanishingStore)
        await broker.lifecycle.open()
        await broker.claim()
        broker.store.vanishing = CREATE_ATTEMPTS_MAX
        await broker.lifecycle.register(broker.registration)
        assert not broker.store.vanishing
        await world.check_registered(broker)
        await broker.lifecycle.close()

    run(0, test)


def test_a_session_that_is_lost_during_a_registration_is_replaced_once() -> None:
    async def test(world: World) -> None:
        broker = Broker(world, SlowStore)
        await broker.lifecycle.open()
        await broker.claim()
        world.ensemble.block(broker.store.session_id)
        registering = asyncio.create_task(broker.lifecycle.register(broker.registration))
        await asyncio.sleep(0.1)
        world.ensemble.expire(broker.store.session_id)
        world.ensemble.unblock(broker.store.session_id)
        await registering
        await asyncio.sleep(QUIET_S)
        await world.check_registered(broker)
        await broker.lifecycle.close()

    for seed in range(5):
        run(seed, test)


def test_a_broker_that_stops_while_its_session_is_lost_ends() -> None:
    async def test(world: World) -> None:
        broker = Broker(world)
        await broker.start()
        world.ensemble.expire(broker.store.session_id)
        broker.store.disconnect()
        await asyncio.sleep(0.6)
        await broker.lifecycle.close()
        assert broker.store.state is SessionState.CLOSED
        await asyncio.sleep(QUIET_S)
        store = MemoryStore(world.ensemble, timers=world.timers)
        await store.open()
        await store.sync()
        with pytest.raises(NoNodeError):
            await store.get(PATH)
        await store.close()

    for seed in range(10):
        run(seed, test)


def test_a_broker_that_loses_its_session_while_it_stops_begins_no_other_one() -> None:
    async def test(world: World) -> None:
        broker = Broker(world)
        await broker.start()
        session_id = broker.store.session_id
        closing = asyncio.create_task(broker.lifecycle.close())
        await asyncio.sleep(0)
        broker.lifecycle._session_changed(SessionState.LOST)
        await closing
        await asyncio.sleep(QUIET_S)
        assert broker.store.state is SessionState.CLOSED
        assert session_id not in world.ensemble._sessions
        assert not world.ensemble._sessions

    run(0, test)


def test_hazard_6_a_broker_waits_for_a_former_session_of_its_own_process() -> None:
    """A session that the client has given up may live on until its timeout."""

    async def test(world: World) -> None:
        broker = Broker(world)
        await broker.start()
        former = MemoryStore(world.ensemble, timers=world.timers)
        await former.open()
        await former.sync()
        node = await former.get(PATH)
        world.ensemble.expire(broker.store.session_id)
        await former.create(PATH, node.data, ephemeral=True)
        broker.store.disconnect()
        await asyncio.sleep(SESSION_TIMEOUT_MS / 2_000)
        assert broker.lifecycle.broker_epoch == -1
        assert not broker.failures
        await former.close()
        await asyncio.sleep(QUIET_S)
        await world.check_registered(broker)
        await broker.lifecycle.close()

    for seed in range(10):
        run(seed, test)
