"""The store on ZooKeeper: connections, credentials, a restart of the server, the use of kazoo."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from kazoo.protocol.states import KeeperState

from odradek.environment.thread_pool import ThreadExecutors
from odradek.metadata.store import zookeeper as zookeeper_store
from odradek.metadata.store.interface import (
    CHROOT_BYTES_MAX,
    Create,
    EventKind,
    Node,
    NodeExistsError,
    NoNodeError,
    SessionLostError,
    SessionState,
    Stat,
    StoreFailure,
    WatchEvent,
)
from odradek.metadata.store.watchdog import SessionWatchdog
from odradek.metadata.store.zookeeper import GETS_IN_FLIGHT_MAX, ZooKeeperStore
from odradek.metadata.store.zookeeper_client import (
    Credentials,
    ZooKeeperAddress,
    create_client,
)
from testkit.peer.server import free_ports
from testkit.zookeeper import TICK_MS, ZooKeeperProcess, start_zookeeper
from tests.metadata.store.store_machine import Session

LIMIT_S = 90


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, LIMIT_S))


def address(zookeeper: ZooKeeperProcess, root: str) -> ZooKeeperAddress:
    return ZooKeeperAddress(zookeeper.address, root)


def test_a_server_that_does_not_run_is_reported() -> None:
    (port,) = free_ports(1)
    store = ZooKeeperStore(ZooKeeperAddress(f"127.0.0.1:{port}"), connection_timeout_ms=300)

    async def scenario() -> None:
        with pytest.raises(StoreFailure, match=f"no connection to ZooKeeper at 127.0.0.1:{port}"):
            await store.open()
        assert store.state is SessionState.CLOSED

    run(scenario())


def test_wrong_credentials_cannot_read_the_nodes_of_others(zookeeper: ZooKeeperProcess) -> None:
    async def scenario() -> None:
        where = address(zookeeper, "/test-credentials")
        owner = ZooKeeperStore(where, Credentials("digest", "odradek:secret"))
        await owner.open()
        await owner.create_root()
        await owner.create("/a", b"1")
        for credentials in (None, Credentials("digest", "odradek:wrong")):
            other = ZooKeeperStore(where, credentials)
            await other.open()
            with pytest.raises(StoreFailure, match="NoAuth"):
                await other.create_root()
            await other.close()
            above = ZooKeeperStore(ZooKeeperAddress(zookeeper.address), credentials)
            await above.open()
            with pytest.raises(StoreFailure, match="NoAuth"):
                await above.get("/test-credentials/a")
            with pytest.raises(StoreFailure, match="NoAuth"):
                await above.multi([Create("/test-credentials/b")])
            await above.close()
        assert (await owner.get("/a")).data == b"1"
        await owner.close()

    run(scenario())
    assert "secret" not in repr(Credentials("digest", "odradek:secret"))


@pytest.mark.parametrize(("requested_ms", "granted_ms"), [(300, 2 * TICK_MS), (90_000, 60_000)])
def test_the_watchdog_uses_the_timeout_that_zookeeper_grants(
    zookeeper: ZooKeeperProcess,
    monkeypatch: pytest.MonkeyPatch,
    requested_ms: int,
    granted_ms: int,
) -> None:
    limits_ms: list[float] = []

    class RecordedWatchdog(SessionWatchdog):
        def __init__(self, limit_ms: float, *arguments: Any) -> None:
            limits_ms.append(limit_ms)
            super().__init__(limit_ms, *arguments)

    monkeypatch.setattr("odradek.metadata.store.zookeeper.SessionWatchdog", RecordedWatchdog)

    async def scenario() -> None:
        store = ZooKeeperStore(address(zookeeper, ""), session_timeout_ms=requested_ms)
        assert store.session_timeout_ms == requested_ms
        await store.open()
        assert store.session_timeout_ms == granted_ms
        assert limits_ms == [granted_ms / 3]
        await store.close()

    run(scenario())


class NoThreads(ThreadExecutors):
    def start_thread(self, target: Callable[[], None], name: str) -> None:
        raise RuntimeError(f"can't start new thread {name}")


def test_a_session_without_a_watchdog_ends(zookeeper: ZooKeeperProcess) -> None:
    async def scenario() -> None:
        store = ZooKeeperStore(address(zookeeper, ""), executors=NoThreads())
        with pytest.raises(RuntimeError, match="odradek-session-watchdog"):
            await store.open()
        assert store.state is SessionState.CLOSED
        with pytest.raises(SessionLostError):
            await store.get("/")

    run(scenario())


def test_a_root_with_a_long_path_is_refused() -> None:
    ZooKeeperAddress("127.0.0.1:2181", "/" + "a" * (CHROOT_BYTES_MAX - 1))
    with pytest.raises(ValueError, match="more than 100 bytes"):
        ZooKeeperAddress("127.0.0.1:2181", "/" + "a" * CHROOT_BYTES_MAX)


def test_two_stores_below_different_roots_share_nothing(zookeeper: ZooKeeperProcess) -> None:
    async def scenario() -> None:
        stores = [ZooKeeperStore(address(zookeeper, f"/test-roots/{n}")) for n in range(2)]
        for store in stores:
            await store.open()
            await store.create_root()
            await store.create("/a")
        with pytest.raises(NodeExistsError):
            await stores[0].create("/a")
        assert [await store.children("/") for store in stores] == [["a"], ["a"]]
        for store in stores:
            await store.close()

    run(scenario())


def test_a_path_that_is_missing_is_an_empty_store_until_its_root_is_created(
    zookeeper: ZooKeeperProcess,
) -> None:
    async def scenario() -> None:
        above = ZooKeeperStore(address(zookeeper, ""))
        store = ZooKeeperStore(address(zookeeper, "/test-missing/top"))
        await above.open()
        await store.open()
        await store.sync()
        assert await store.exists("/") is None
        assert await store.get_many(["/a"]) == [None]
        with pytest.raises(NoNodeError):
            await store.get("/a")
        with pytest.raises(NoNodeError):
            await store.create("/a")
        assert await above.exists("/test-missing") is None
        for _ in range(2):
            await store.create_root()
        await store.create("/a", b"1")
        assert (await above.get("/test-missing/top/a")).data == b"1"
        for each in (store, above):
            await each.close()

    run(scenario())


def test_many_nodes_are_read_in_one_call(zookeeper: ZooKeeperProcess) -> None:
    async def scenario() -> None:
        store = ZooKeeperStore(address(zookeeper, "/test-many"))
        await store.open()
        await store.create_root()
        count = GETS_IN_FLIGHT_MAX + 10
        await store.multi([Create(f"/{number}", b"%d" % number) for number in range(0, count, 2)])
        nodes = await store.get_many([f"/{number}" for number in range(count)])
        assert [None if node is None else node.data for node in nodes] == [
            None if number % 2 else b"%d" % number for number in range(count)
        ]
        await store.close()

    run(scenario())


def test_large_write_is_prepared_in_time_slices(
    zookeeper: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_store, "OPERATIONS_PER_SLICE", 2)
    ended: list[None] = []

    async def end_slice() -> None:
        ended.append(None)
        await asyncio.sleep(0)

    monkeypatch.setattr(zookeeper_store, "end_slice", end_slice)

    async def scenario() -> None:
        store = ZooKeeperStore(address(zookeeper, "/test-slices"))
        await store.open()
        await store.create_root()
        written = await store.multi([Create(f"/{number}") for number in range(5)])
        assert [each.path for each in written] == [f"/{number}" for number in range(5)]
        assert len(ended) == 2
        late = asyncio.ensure_future(store.multi([Create("/a"), Create("/b"), Create("/c")]))
        await asyncio.sleep(0)  # the call begins
        await asyncio.sleep(0)  # its first time slice
        assert len(ended) == 3
        await store.close()
        with pytest.raises(SessionLostError):
            await late

    run(scenario())


def test_calls_after_a_postponed_call_that_fails_are_made(
    zookeeper: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_store, "OPERATIONS_PER_SLICE", 2)

    async def scenario() -> None:
        store = ZooKeeperStore(address(zookeeper, "/test-postponed"))
        await store.open()
        await store.create_root()
        calls = [
            asyncio.ensure_future(each)
            for each in (
                store.multi([Create(f"/{number}") for number in range(5)]),
                store.set("/0", b"1", version="no number"),  # type: ignore[arg-type]
                store.get("/0"),
            )
        ]
        written, refused, found = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(written, list)
        assert isinstance(refused, TypeError)
        assert isinstance(found, Node)
        await store.close()

    run(scenario())


def test_calls_above_the_limit_of_postponed_calls_fail(
    zookeeper: ZooKeeperProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_store, "OPERATIONS_PER_SLICE", 2)
    monkeypatch.setattr(zookeeper_store, "POSTPONED_MAX", 2)

    async def scenario() -> None:
        store = ZooKeeperStore(address(zookeeper, "/test-postponed-limit"))
        await store.open()
        await store.create_root()
        large = asyncio.ensure_future(store.multi([Create(f"/{number}") for number in range(5)]))
        await asyncio.sleep(0)  # the preparation begins
        reads = [store.exists("/") for _ in range(3)]
        outcomes = await asyncio.gather(*reads, return_exceptions=True)
        assert [type(each) for each in outcomes] == [Stat, Stat, StoreFailure]
        assert len(await large) == 5
        await store.close()

    run(scenario())


def test_a_session_survives_a_sigkill_of_the_server(tmp_path: Path) -> None:
    with start_zookeeper(tmp_path) as server:

        async def scenario() -> None:
            session = Session(ZooKeeperStore(address(server, "/root"), session_timeout_ms=30_000))
            store = session.store
            await store.open()
            await store.create_root()
            session_id = store.session_id
            await store.create("/1", ephemeral=True)
            await store.exists("/a", session.watcher())
            server.kill()
            await session.reached(SessionState.SUSPENDED)
            await asyncio.get_running_loop().run_in_executor(None, server.restart)
            await store.connected()
            assert store.session_id == session_id
            stat = await store.exists("/1")
            assert stat is not None and stat.ephemeral_owner == session_id
            assert session.events == [WatchEvent(EventKind.DISCONNECTED, "/a")]
            await store.close()

        run(scenario())


def test_kazoo_is_imported_only_where_zookeeper_is_used() -> None:
    program = (
        "import sys, odradek.broker.broker, odradek.cli.main, odradek.metadata.store.sqlite\n"
        "assert 'kazoo' not in sys.modules\n"
        "import odradek.metadata.store.zookeeper\n"
        "assert 'kazoo' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT_S)


class RecordedEvents:
    def __init__(self) -> None:
        self.states: list[str] = []

    def completed(self, result: Any) -> None: ...

    def negotiated(self, session_timeout_ms: int) -> None: ...

    def state_changed(self, state: str) -> None:
        self.states.append(state)


def test_a_client_whose_session_was_lost_begins_no_other_session(
    zookeeper: ZooKeeperProcess,
) -> None:
    events = RecordedEvents()
    client = create_client(ZooKeeperAddress(zookeeper.address), 10_000, None, events)
    where = ("127.0.0.1", zookeeper.port)
    client.handler.create_connection(where).close()
    client._session_callback(KeeperState.CONNECTED)
    client._session_callback(KeeperState.EXPIRED_SESSION)
    assert events.states == ["CONNECTED", "LOST"]
    with pytest.raises(ConnectionRefusedError, match="the session has ended"):
        client.handler.create_connection(where)
