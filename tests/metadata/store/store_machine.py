"""One state machine of random calls and faults for every metadata store, compared with a model.

A subclass provides the sessions. Each step calls a store and the model, and compares results,
errors, watch events and session events. Zxids and session ids are compared by their order and
identity, because each store has its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.metadata.store.interface import (
    ANY_VERSION,
    NO_SESSION,
    Check,
    Create,
    Created,
    Delete,
    EventKind,
    MetadataStore,
    NoNodeError,
    Operation,
    SessionState,
    Set,
    Stat,
    StoreError,
    WatchEvent,
    Written,
    parent_of,
)
from tests.metadata.store.model import NOBODY, Model, SessionModel

Result = TypeVar("Result")

PATHS = st.sampled_from(["/a", "/a/x", "/a/y", "/a/x/1", "/a b"])
DATA = st.binary(max_size=4)
VERSIONS = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1])
CREATES = st.builds(Create, PATHS, DATA, st.booleans(), st.sampled_from([False, False, True]))
OPERATIONS = st.one_of(
    CREATES,
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
SESSIONS = st.sampled_from(["first", "second"])


class Session:
    """A store under test, with the events that it has delivered."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.events: list[WatchEvent] = []
        self.states: list[SessionState] = []
        store.subscribe(self.states.append)

    def watcher(self) -> Any:
        """Return a watcher that is equal to no other one."""
        return lambda event: self.events.append(event)


class StoreMachine(RuleBasedStateMachine):
    """Rules for any store."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = Model()
        self.sessions: dict[str, Session] = {}
        self.zxids: dict[int, int] = {}
        self.begin()
        for name in self.names():
            self.start(name)

    # --- for subclasses ---

    def names(self) -> Sequence[str]:
        return ("first", "second")

    def begin(self) -> None:
        """Create what the stores share."""

    def new_store(self) -> MetadataStore:
        raise NotImplementedError

    # --- sessions ---

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(asyncio.wait_for(call, 60))

    def start(self, name: str) -> None:
        session = self.sessions[name] = Session(self.new_store())
        self.model.sessions[name] = SessionModel()
        self.run(session.store.open())
        assert session.store.state is SessionState.CONNECTED
        assert session.states == [SessionState.CONNECTED]
        assert session.store.session_id > NO_SESSION

    def teardown(self) -> None:
        for session in self.sessions.values():
            self.run(session.store.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()

    def named(self, name: str) -> tuple[Session, SessionModel]:
        """Return the session of that name. A store with one session has the first only."""
        name = name if name in self.sessions else "first"
        return self.sessions[name], self.model.sessions[name]

    # --- comparison ---

    def check_events(self) -> None:
        """Compare the events of all sessions since the last call. A sync brings the late ones."""
        for name, session in self.sessions.items():
            self.run(session.store.sync())
            expected = self.model.sessions[name].events
            self.compare_events(session.events, expected)
            session.events.clear()
            expected.clear()

    def compare_events(self, found: list[WatchEvent], expected: list[WatchEvent]) -> None:
        if any(event.kind is EventKind.DISCONNECTED for event in expected):
            key = str
            assert sorted(found, key=key) == sorted(expected, key=key)
        else:
            assert found == expected

    def check_stat(self, found: Stat, path: str) -> None:
        expected = self.model.stat(path)
        names = ("version", "cversion", "child_count")
        assert [getattr(found, each) for each in names] == [
            getattr(expected, each) for each in names
        ]
        owner = self.model.entries[path].owner
        assert found.ephemeral_owner == (
            NO_SESSION if owner == NOBODY else self.sessions[owner].store.session_id
        )
        for ours, theirs in zip(expected[:3], found[:3], strict=True):
            assert self.zxids.setdefault(ours, theirs) == theirs
        known = sorted(self.zxids.items())
        assert [zxid for _, zxid in known] == sorted({zxid for _, zxid in known})

    def expected(self, operations: Sequence[Operation], name: str) -> Any:
        """Return the model's results of a write, or its error."""
        try:
            return self.model.write(operations, name)
        except StoreError as error:
            return error

    def outcome(self, call: Coroutine[Any, Any, Result]) -> Result | StoreError:
        try:
            return self.run(call)
        except StoreError as error:
            return error

    def compare(self, found: Any, expected: Any) -> bool:
        """Compare the outcome of a write. Return whether it succeeded."""
        if isinstance(expected, StoreError) or isinstance(found, StoreError):
            assert type(found) is type(expected), (found, expected)
            assert found.path == expected.path
            return False
        return True

    # --- calls ---

    @initialize(paths=st.sets(PATHS))
    def populate(self, paths: set[str]) -> None:
        for path in sorted(paths):
            if parent_of(path) in self.model.entries:
                self.run(self.sessions["first"].store.create(path, b"first"))
                self.model.write([Create(path, b"first")], "first")

    @rule(name=SESSIONS, operations=st.lists(OPERATIONS, max_size=5))
    def multi(self, name: str, operations: list[Operation]) -> None:
        session, _ = self.named(name)
        name = self.name_of(session)
        expected = self.expected(operations, name)
        found = self.outcome(session.store.multi(operations))
        if self.compare(found, expected):
            assert found == [Written(*result) for result in expected]
        self.check_events()

    def name_of(self, session: Session) -> str:
        return next(name for name, each in self.sessions.items() if each is session)

    @rule(name=SESSIONS, create=CREATES)
    def create(self, name: str, create: Create) -> None:
        session, _ = self.named(name)
        expected = self.expected([create], self.name_of(session))
        path, data, ephemeral, sequential = create
        found = self.outcome(
            session.store.create(path, data, ephemeral=ephemeral, sequential=sequential)
        )
        if self.compare(found, expected):
            assert isinstance(found, Created)
            assert found.path == expected[0][0]
            self.check_stat(found.stat, found.path)
        self.check_events()

    @rule(name=SESSIONS, path=PATHS, version=VERSIONS)
    def delete(self, name: str, path: str, version: int) -> None:
        session, _ = self.named(name)
        expected = self.expected([Delete(path, version)], self.name_of(session))
        self.compare(self.outcome(session.store.delete(path, version)), expected)
        self.check_events()

    @rule(name=SESSIONS, path=PATHS, data=DATA, version=VERSIONS)
    def set(self, name: str, path: str, data: bytes, version: int) -> None:
        session, _ = self.named(name)
        expected = self.expected([Set(path, data, version)], self.name_of(session))
        found = self.outcome(session.store.set(path, data, version))
        if self.compare(found, expected):
            assert isinstance(found, Stat)
            self.check_stat(found, path)
        self.check_events()

    @rule(name=SESSIONS, path=PATHS)
    def watch_node(self, name: str, path: str) -> None:
        session, model = self.named(name)
        try:
            node = self.run(session.store.get(path, session.watcher()))
        except NoNodeError:
            assert path not in self.model.entries
            return
        assert node.data == self.model.entries[path].data
        self.check_stat(node.stat, path)
        model.nodes.append(path)

    @rule(name=SESSIONS, path=PATHS)
    def watch_for_existence(self, name: str, path: str) -> None:
        session, model = self.named(name)
        stat = self.run(session.store.exists(path, session.watcher()))
        assert (stat is not None) == (path in self.model.entries)
        if stat is not None:
            self.check_stat(stat, path)
        model.nodes.append(path)

    @rule(name=SESSIONS, path=PATHS | st.just("/"))
    def watch_children(self, name: str, path: str) -> None:
        session, model = self.named(name)
        try:
            names = self.run(session.store.children(path, session.watcher()))
        except NoNodeError:
            assert path not in self.model.entries
            return
        assert names == self.model.children(path)
        model.children.append(path)

    @rule(name=SESSIONS)
    def reopen(self, name: str) -> None:
        session, _ = self.named(name)
        name = self.name_of(session)
        self.run(session.store.close())
        assert session.store.state is SessionState.CLOSED
        assert session.store.session_id == NO_SESSION
        del self.sessions[name], self.model.sessions[name]
        self.model.end_session(name)
        self.check_events()
        self.start(name)

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        paths = sorted(
            {"/", "/a", "/a/x", "/a/y", "/a/x/1", "/a b", "/none"} | {*self.model.entries}
        )
        for session in self.sessions.values():
            self.run(session.store.sync())
            for path, node in zip(paths, self.run(session.store.get_many(paths)), strict=True):
                entry = self.model.entries.get(path)
                assert (node is None) == (entry is None), path
                if node is not None and entry is not None:
                    assert node.data == entry.data
                    self.check_stat(node.stat, path)
