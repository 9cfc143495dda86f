"""All metadata stores compared with the model, by random calls and faults.

ODRADEK_STORE_EXAMPLES is a factor of the number of examples, for longer runs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from odradek.environment.clock import ManualClock
from odradek.metadata.store.ensemble import EnsembleConditions, MemoryEnsemble
from odradek.metadata.store.interface import SingleNodeStore
from odradek.metadata.store.sqlite import SqliteStore
from testkit.zookeeper import ZooKeeperProcess
from tests.helpers.manual_timers import SteppedTimers
from tests.helpers.seeded_randomness import SeededRandomness
from tests.metadata.store.store_machine import Session, StoreMachine
from tests.metadata.store.worlds import MemoryWorld, ThreadedWorld, ZooKeeperWorld

FACTOR = int(os.environ.get("ODRADEK_STORE_EXAMPLES", "1"))
pytestmark = pytest.mark.timeout(300 * FACTOR)


class MemoryMachine(StoreMachine):
    def begin(self) -> None:
        self.world = MemoryWorld()


class LaggingMachine(StoreMachine):
    """Servers that lag. Calls of `sync` bring the state of the model, and time passes at random."""

    def begin(self) -> None:
        self.timers = SteppedTimers(ManualClock())
        conditions = EnsembleConditions(servers=3, lag_ms=(0, 40))
        ensemble = MemoryEnsemble(conditions, randomness=SeededRandomness(7), timers=self.timers)
        self.world = MemoryWorld(ensemble)

    @rule(ms=st.integers(1, 30))
    def time_passes(self, ms: int) -> None:
        self.timers.advance(ms)


class ThreadedMachine(StoreMachine):
    def begin(self) -> None:
        self.world = ThreadedWorld()


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
    """Each example has a root of its own."""

    server: ClassVar[ZooKeeperProcess]

    def begin(self) -> None:
        self.world = ZooKeeperWorld(self.server)


@pytest.fixture(scope="module")
def server_of_machine(zookeeper: ZooKeeperProcess) -> None:
    ZooKeeperMachine.server = zookeeper


BOUNDS = settings(max_examples=60 * FACTOR, stateful_step_count=40, deadline=None)
TestMemoryStore = MemoryMachine.TestCase
TestMemoryStore.settings = BOUNDS
TestLaggingStore = LaggingMachine.TestCase
TestLaggingStore.settings = BOUNDS
TestThreadedStore = ThreadedMachine.TestCase
TestThreadedStore.settings = BOUNDS
TestSqliteStore = SqliteMachine.TestCase
TestSqliteStore.settings = BOUNDS


@pytest.mark.usefixtures("server_of_machine")
class TestZooKeeperStore(ZooKeeperMachine.TestCase):  # type: ignore[name-defined, misc]
    settings = settings(
        BOUNDS,
        max_examples=15 * FACTOR,
        stateful_step_count=20,
        suppress_health_check=[HealthCheck.too_slow],
    )
