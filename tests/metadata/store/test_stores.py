"""All metadata stores compared with the model, by random calls and faults.

ODRADEK_STORE_EXAMPLES is a factor of the number of examples, for longer runs.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from odradek.environment.clock import ManualClock
from odradek.metadata.store.ensemble import EnsembleConditions
from odradek.metadata.store.interface import MetadataStore, SingleNodeStore
from odradek.metadata.store.memory import MemoryEnsemble, MemoryStore
from odradek.metadata.store.sqlite import SqliteStore
from odradek.metadata.store.zookeeper import ZooKeeperStore
from odradek.metadata.store.zookeeper_client import ZooKeeperAddress
from testkit.zookeeper import ZooKeeperProcess
from tests.helpers.manual_timers import SteppedTimers
from tests.helpers.seeded_randomness import SeededRandomness
from tests.helpers.zookeeper_proxy import HOST, Loss, ZooKeeperProxy
from tests.metadata.store.store_machine import Session, StoreMachine
from tests.metadata.store.zookeeper_sessions import end_session

FACTOR = int(os.environ.get("ODRADEK_STORE_EXAMPLES", "1"))


class MemoryMachine(StoreMachine):
    def begin(self) -> None:
        self.ensemble = MemoryEnsemble()

    def new_store(self) -> MetadataStore:
        return MemoryStore(self.ensemble)

    def lose(self, session: Session, loss: Loss) -> None:
        assert isinstance(session.store, MemoryStore)
        if loss is Loss.REQUEST:
            session.store.lose_next_request()
        else:
            session.store.lose_next_response()

    def block(self, session: Session) -> None:
        self.ensemble.block(session.store.session_id)

    def unblock(self, session: Session) -> None:
        self.ensemble.unblock(session.store.session_id)

    def expire(self, session: Session) -> None:
        self.ensemble.expire(session.store.session_id)


class LaggingMachine(MemoryMachine):
    """Servers that lag. Calls of `sync` bring the state of the model, and time passes at random."""

    def begin(self) -> None:
        self.timers = SteppedTimers(ManualClock())
        conditions = EnsembleConditions(servers=3, lag_ms=(0, 40))
        self.ensemble = MemoryEnsemble(
            conditions, randomness=SeededRandomness(7), timers=self.timers
        )

    @rule(ms=st.integers(1, 30))
    def time_passes(self, ms: int) -> None:
        self.timers.advance(ms)


class SqliteMachine(StoreMachine):
    has_connections = False

    def names(self) -> tuple[str, ...]:
        return ("first",)

    def begin(self) -> None:
        self.directories = [Path(tempfile.mkdtemp(prefix="odradek-store-"))]

    def new_store(self) -> SingleNodeStore:
        return SqliteStore(self.directories[-1] / "metadata.sqlite")

    def teardown(self) -> None:
        super().teardown()
        for directory in self.directories:
            shutil.rmtree(directory)

    @precondition(lambda self: len(self.directories) < 5)
    @rule()
    def crash(self) -> None:
        """Open a copy of the files as they are now, as another process would after a crash."""
        after = Path(tempfile.mkdtemp(prefix="odradek-store-"))
        for name in ("metadata.sqlite", "metadata.sqlite-wal"):
            source = self.directories[-1] / name
            if source.exists():
                shutil.copyfile(source, after / name)
        session: Session = self.sessions.pop("first")
        self.run(session.store.close())
        del self.model.sessions["first"]
        self.model.end_session("first")
        self.directories.append(after)
        self.start("first")

    @invariant()
    def changes_are_counted(self) -> None:
        store = self.sessions["first"].store
        assert isinstance(store, SqliteStore)
        assert self.run(store.change_count()) == self.model.change_count


class ZooKeeperMachine(StoreMachine):
    """Each session has a proxy. Each example has a root of its own."""

    server: ClassVar[ZooKeeperProcess]
    proxies: ClassVar[list[ZooKeeperProxy]]
    roots: ClassVar[Iterator[int]] = itertools.count()

    def begin(self) -> None:
        self.root = f"/{os.getpid()}-{next(self.roots)}"
        self.proxy_of: dict[MetadataStore, ZooKeeperProxy] = {}

    def new_store(self) -> MetadataStore:
        used = {self.proxy_of[session.store] for session in self.sessions.values()}
        proxy = next(proxy for proxy in self.proxies if proxy not in used)
        store = ZooKeeperStore(ZooKeeperAddress(f"{HOST}:{proxy.port}", self.root))
        self.proxy_of[store] = proxy
        return store

    def lose(self, session: Session, loss: Loss) -> None:
        self.proxy_of[session.store].lose_next_write(loss)

    def block(self, session: Session) -> None:
        self.proxy_of[session.store].cut(refuse=True)

    def unblock(self, session: Session) -> None:
        self.proxy_of[session.store].accept()

    def expire(self, session: Session) -> None:
        assert isinstance(session.store, ZooKeeperStore)
        end_session(self.server.address, session.store)


@pytest.fixture(scope="module")
def proxies(zookeeper: ZooKeeperProcess) -> Iterator[None]:
    ZooKeeperMachine.server = zookeeper
    ZooKeeperMachine.proxies = [ZooKeeperProxy(zookeeper.port) for _ in range(2)]
    yield
    for proxy in ZooKeeperMachine.proxies:
        proxy.close()


BOUNDS = settings(max_examples=60 * FACTOR, stateful_step_count=40, deadline=None)
TestMemoryStore = MemoryMachine.TestCase
TestMemoryStore.settings = BOUNDS
TestLaggingStore = LaggingMachine.TestCase
TestLaggingStore.settings = BOUNDS
TestSqliteStore = SqliteMachine.TestCase
TestSqliteStore.settings = BOUNDS


@pytest.mark.usefixtures("proxies")
class TestZooKeeperStore(ZooKeeperMachine.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(
        BOUNDS,
        max_examples=15 * FACTOR,
        stateful_step_count=20,
        suppress_health_check=[HealthCheck.too_slow],
    )
