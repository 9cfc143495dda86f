"""The hazards of ZooKeeper, each by its number in docs/kafka-semantics.md, on every ensemble."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from odradek.environment.clock import ManualClock
from odradek.metadata.store.ensemble import EnsembleConditions, MemoryEnsemble
from odradek.metadata.store.interface import (
    MULTI_BYTES_MAX,
    BadVersionError,
    Check,
    Create,
    EventKind,
    MetadataStore,
    MultiTooLargeError,
    NodeExistsError,
    NoNodeError,
    NotConnectedError,
    SessionLostError,
    SessionState,
    Set,
    StoreError,
    StoreFailure,
    UnknownOutcomeError,
    WatchEvent,
    operations_bytes,
)
from odradek.metadata.store.resolution import create_ephemeral, write_with_version_node
from testkit.zookeeper import ZooKeeperProcess
from tests.helpers.manual_timers import SteppedTimers
from tests.helpers.seeded_randomness import SeededRandomness
from tests.helpers.zookeeper_proxy import Loss
from tests.metadata.store.store_machine import Session
from tests.metadata.store.worlds import MemoryWorld, World, ZooKeeperWorld

LIMIT_S = 60
Scenario = Callable[[World], Coroutine[Any, Any, None]]


@pytest.fixture(params=["memory", "zookeeper"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    found: World
    if request.param == "memory":
        found = MemoryWorld()
    else:
        found = ZooKeeperWorld(request.getfixturevalue("zookeeper"))
    yield found
    found.close()


@pytest.fixture(params=list(Loss), ids=lambda loss: loss.name.lower())
def loss(request: pytest.FixtureRequest) -> Loss:
    assert isinstance(request.param, Loss)
    return request.param


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, LIMIT_S))


async def opened(world: World) -> Session:
    session = Session(world.new_store())
    await session.store.open()
    return session


def test_hazard_1_a_lost_connection_leaves_the_outcome_of_a_write_unknown(
    world: World, loss: Loss
) -> None:
    async def scenario() -> None:
        store = (await opened(world)).store
        world.lose(store, loss)
        with pytest.raises(UnknownOutcomeError) as caught:
            await store.create("/a")
        assert not isinstance(caught.value, StoreError | StoreFailure)
        await store.connected()
        assert (await store.exists("/a") is not None) == (loss is Loss.RESPONSE)
        await store.close()

    run(scenario())


def test_hazard_1_a_lost_write_is_resolved_by_the_version_node(world: World, loss: Loss) -> None:
    async def scenario() -> None:
        store = (await opened(world)).store
        await store.multi([Create("/metadata"), Create("/a", b"old")])
        world.lose(store, loss)
        operations = [Set("/a", b"new", 0), Create("/b")]
        writing = write_with_version_node(store, operations, Set("/metadata", b"1", 0))
        if loss is Loss.RESPONSE:
            assert [tuple(each) for each in await writing] == [
                ("/a", 1),
                ("/b", 0),
                ("/metadata", 1),
            ]
        else:
            with pytest.raises(NotConnectedError):
                await writing
        happened = loss is Loss.RESPONSE
        assert (await store.get("/a")).version == happened
        assert (await store.get("/metadata")).version == happened
        await store.close()

    run(scenario())


def test_hazard_1_a_lost_creation_of_an_ephemeral_node_is_resolved_by_its_owner(
    world: World, loss: Loss
) -> None:
    async def scenario() -> None:
        store = (await opened(world)).store
        world.lose(store, loss)
        if loss is Loss.RESPONSE:
            created = await create_ephemeral(store, "/controller", b"1")
            assert created == ("/controller", (await store.get("/controller")).stat)
        else:
            with pytest.raises(NotConnectedError):
                await create_ephemeral(store, "/controller", b"1")
            assert await store.exists("/controller") is None
        await store.close()

    run(scenario())


def test_hazard_2_an_expired_session_has_no_nodes_and_no_watches(world: World) -> None:
    async def scenario() -> None:
        session, other = await opened(world), await opened(world)
        store = session.store
        first_id = store.session_id
        await store.create("/controller", b"1", ephemeral=True)
        await store.exists("/a", session.watcher())
        await other.store.exists("/controller", other.watcher())
        world.block(store)
        await session.reached(SessionState.SUSPENDED)
        assert other.events == []
        world.expire(store)
        world.unblock(store)
        with pytest.raises(SessionLostError):
            await store.connected()
        for call in (store.get("/a"), store.create("/a"), store.sync(), store.multi([])):
            with pytest.raises(SessionLostError):
                await call
        await other.store.sync()
        assert other.events == [WatchEvent(EventKind.DELETED, "/controller")]
        await store.close()
        await store.open()
        assert store.session_id != first_id
        await other.store.create("/a")
        await store.sync()
        assert session.events == [WatchEvent(EventKind.DISCONNECTED, "/a")]
        assert session.states == [
            SessionState.CONNECTED,
            SessionState.SUSPENDED,
            SessionState.LOST,
            SessionState.CONNECTED,
        ]
        await store.close()
        await other.store.close()

    run(scenario())


def test_hazard_3_a_check_of_the_epoch_refuses_the_writes_of_an_older_controller(
    world: World,
) -> None:
    async def scenario() -> None:
        older, newer = (await opened(world)).store, (await opened(world)).store
        await older.create("/controller_epoch", b"1")
        await older.create("/state", b"old")
        await newer.set("/controller_epoch", b"2", 0)
        with pytest.raises(BadVersionError) as caught:
            await older.multi([Check("/controller_epoch", 0), Set("/state", b"new")])
        assert caught.value.path == "/controller_epoch"
        assert (await newer.get("/state")).data == b"old"
        await older.close()
        await newer.close()

    run(scenario())


def test_hazard_5_a_node_that_was_created_again_has_a_larger_czxid(world: World) -> None:
    async def scenario() -> None:
        observer, broker = await opened(world), (await opened(world)).store
        first = await broker.create("/1", ephemeral=True)
        before = await observer.store.children("/")
        await broker.close()
        await broker.open()
        second = await broker.create("/1", ephemeral=True)
        await observer.store.sync()
        assert await observer.store.children("/") == before  # the restart is not seen here
        assert (await observer.store.get("/1")).stat.czxid == second.stat.czxid
        assert second.stat.czxid > first.stat.czxid
        await broker.close()
        await observer.store.close()

    run(scenario())


def test_hazard_6_the_node_of_a_former_session_is_replaced_and_no_other(world: World) -> None:
    async def scenario() -> None:
        former, other = (await opened(world)).store, (await opened(world)).store
        await former.create("/1", b"former", ephemeral=True)
        with pytest.raises(NodeExistsError):
            await create_ephemeral(other, "/1", b"other")
        with pytest.raises(NodeExistsError):
            await create_ephemeral(other, "/1", b"other", former_session_id=other.session_id)
        assert (await other.get("/1")).data == b"former"
        created = await create_ephemeral(other, "/1", b"other", former_session_id=former.session_id)
        assert created.stat.ephemeral_owner == other.session_id
        await former.close()
        assert (await other.get("/1")).data == b"other"
        await other.close()

    run(scenario())


def test_hazard_7_a_watch_fires_once_and_later_changes_are_read(world: World) -> None:
    async def scenario() -> None:
        session, writer = await opened(world), (await opened(world)).store
        await session.store.exists("/a", session.watcher())
        await writer.create("/a", b"1")
        await writer.set("/a", b"2")
        await writer.set("/a", b"3")
        await session.store.sync()
        assert session.events == [WatchEvent(EventKind.CREATED, "/a")]
        assert (await session.store.get("/a")).data == b"3"
        await session.store.close()
        await writer.close()

    run(scenario())


def test_hazard_7_a_watch_fires_before_its_session_reads_newer_data(world: World) -> None:
    rounds = 100

    async def scenario() -> None:
        session, writer = await opened(world), (await opened(world)).store
        await writer.create("/a")

        async def write() -> None:
            for _ in range(rounds):
                await writer.set("/a", b"")

        writing = asyncio.create_task(write())
        seen = 0
        while seen < rounds:
            fired: list[WatchEvent] = []
            watched = await session.store.get("/a", fired.append)
            while (seen := (await session.store.get("/a")).version) == watched.version < rounds:
                pass
            assert seen == watched.version or fired == [WatchEvent(EventKind.CHANGED, "/a")]
        await writing
        await session.store.close()
        await writer.close()

    run(scenario())


def test_hazard_7_a_watch_ends_with_its_connection(world: World) -> None:
    async def scenario() -> None:
        session, writer = await opened(world), (await opened(world)).store
        await session.store.exists("/a", session.watcher())
        world.block(session.store)
        await session.reached(SessionState.SUSPENDED)
        await writer.create("/a")
        world.unblock(session.store)
        await session.store.connected()
        await session.store.sync()
        assert session.events == [WatchEvent(EventKind.DISCONNECTED, "/a")]
        await session.store.close()
        await writer.close()

    run(scenario())


def test_hazard_8_reads_are_stale_until_a_sync_but_follow_own_writes() -> None:
    async def scenario() -> None:
        timers = SteppedTimers(ManualClock())
        conditions = EnsembleConditions(servers=3, lag_ms=(1000, 1000))
        ensemble = MemoryEnsemble(conditions, randomness=SeededRandomness(1), timers=timers)
        world = MemoryWorld(ensemble)
        sessions = [await opened(world) for _ in range(6)]
        writer, *readers = [session.store for session in sessions]
        await writer.create("/a")
        assert (await writer.get("/a")).version == 0
        stale = [store for store in readers if await store.exists("/a") is None]
        assert 0 < len(stale) < len(readers)  # some are connected to the writer's server
        assert await stale[0].exists("/a") is None
        await stale[0].sync()
        assert await stale[0].exists("/a") is not None
        stale[1].disconnect()  # type: ignore[attr-defined]
        timers.advance(1000)
        await stale[1].connected()
        assert all([await store.exists("/a") is not None for store in readers])

    run(scenario())


def test_hazard_8_a_session_that_connects_again_reads_nothing_older() -> None:
    async def scenario() -> None:
        timers = SteppedTimers(ManualClock())
        conditions = EnsembleConditions(servers=3, lag_ms=(1000, 1000))
        ensemble = MemoryEnsemble(conditions, randomness=SeededRandomness(2), timers=timers)
        session = await opened(MemoryWorld(ensemble))
        await session.store.create("/a")
        for number in range(1, 20):
            await session.store.set("/a", b"")
            session.store.disconnect()  # type: ignore[attr-defined]
            await session.reached(SessionState.SUSPENDED)
            await session.store.connected()
            assert (await session.store.get("/a")).version == number

    run(scenario())


def filler(count: int, size: int) -> list[Create]:
    return [Create(f"/{number}", bytes(size)) for number in range(count)]


def test_hazard_10_a_multi_above_the_limit_is_refused_before_it_is_sent(world: World) -> None:
    async def scenario() -> None:
        session = await opened(world)
        largest = filler(1, 0)
        size = MULTI_BYTES_MAX - operations_bytes(largest)
        with pytest.raises(MultiTooLargeError):
            await session.store.multi(filler(1, size + 1))
        with pytest.raises(MultiTooLargeError):
            await session.store.create("/0", bytes(size + 1))
        assert await session.store.children("/") == []
        assert len(await session.store.multi(filler(1, size))) == 1
        assert session.states == [SessionState.CONNECTED]
        await session.store.close()

    run(scenario())


def test_hazard_10_the_limit_counts_every_byte_of_many_small_operations(world: World) -> None:
    """ZooKeeper accepts the largest multi of the smallest operations."""

    async def scenario() -> None:
        session = await opened(world)
        count = MULTI_BYTES_MAX // (operations_bytes([Create("/0000")]) + 1)
        operations = [Create(f"/{number:04}") for number in range(count)]
        assert MULTI_BYTES_MAX * 0.9 < operations_bytes(operations) <= MULTI_BYTES_MAX
        assert len(await session.store.multi(operations)) == count
        assert len(await session.store.children("/")) == count
        assert session.states == [SessionState.CONNECTED]
        await session.store.close()

    run(scenario())


def test_a_cancelled_write_is_executed_and_fires_its_watches(world: World) -> None:
    async def scenario() -> None:
        session = await opened(world)
        await session.store.exists("/a", session.watcher())
        writing = asyncio.create_task(session.store.create("/a"))
        await asyncio.sleep(0)
        writing.cancel()
        await session.store.sync()
        assert session.events == [WatchEvent(EventKind.CREATED, "/a")]
        await session.store.close()

    run(scenario())


def test_hazard_10_writes_in_flight_are_executed_in_the_order_of_their_calls(world: World) -> None:
    async def scenario() -> None:
        store = (await opened(world)).store
        await store.create("/a")
        writes = [asyncio.create_task(store.set("/a", b"", version)) for version in range(100)]
        assert [stat.version for stat in await asyncio.gather(*writes)] == list(range(1, 101))
        await store.close()

    run(scenario())


def test_hazard_11_a_blocked_event_loop_loses_its_session(zookeeper: ZooKeeperProcess) -> None:
    """The event loop blocks until another client sees that the watchdog has ended the session."""
    world = ZooKeeperWorld(zookeeper)
    observer = KazooClient(zookeeper.address)
    observer.start(LIMIT_S)
    deleted = threading.Event()

    async def scenario() -> None:
        # ZooKeeper itself would end the session after a minute without a ping.
        session = Session(world.new_store(session_timeout_ms=3_000))
        await session.store.open()
        await session.store.create("/1", ephemeral=True)
        observer.exists(f"{world.root}/1", lambda _: deleted.set())
        assert deleted.wait(LIMIT_S), "the session was not ended"
        await session.reached(SessionState.LOST)
        assert session.states == [
            SessionState.CONNECTED,
            SessionState.SUSPENDED,
            SessionState.LOST,
        ]
        with pytest.raises(NoNodeError):
            await opened_again(session.store)

    async def opened_again(store: MetadataStore) -> None:
        await store.close()
        await store.open()
        try:
            await store.get("/1")
        finally:
            await store.close()

    try:
        run(scenario())
    finally:
        observer.stop()
        observer.close()
        world.close()
