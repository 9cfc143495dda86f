"""All metadata stores compared with the model, by random calls and faults."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import invariant, precondition, rule

from odradek.metadata.store.interface import MetadataStore, SingleNodeStore
from odradek.metadata.store.memory import MemoryEnsemble, MemoryStore
from odradek.metadata.store.sqlite import SqliteStore
from tests.metadata.store.store_machine import Session, StoreMachine


class MemoryMachine(StoreMachine):
    def begin(self) -> None:
        self.ensemble = MemoryEnsemble()

    def new_store(self) -> MetadataStore:
        return MemoryStore(self.ensemble)


class SqliteMachine(StoreMachine):
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


BOUNDS = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestMemoryStore = MemoryMachine.TestCase
TestMemoryStore.settings = BOUNDS
TestSqliteStore = SqliteMachine.TestCase
TestSqliteStore.settings = BOUNDS
