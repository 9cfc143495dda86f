"""One state machine of random calls and faults for every metadata store, compared with a model.

A subclass provides the sessions. Each step calls a store and the model, and compares results,
errors, watch events and session events. Zxids and session ids are compared by their order and
identity, because each store has its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
    NotConnectedError,
    Operation,
    SessionLostError,
    SessionState,
    Set,
    Stat,
    StoreError,
    UnknownOutcomeError,
    WatchEvent,
    Written,
    parent_of,
)
from tests.helpers.zookeeper_proxy import Loss
from tests.metadata.store.model import NO_OWNER, Model, SessionModel
from tests.metadata.store.worlds import World

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
LOSSES = st.sampled_from(list(Loss))
CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED


async def yielding() -> None:
    """Let the event loop make the calls that are due."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


class Session:
    """A store under test, with the events that it has delivered."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.events: list[WatchEvent] = []
        self.states: list[SessionState] = []
        self._waiting: list[tuple[SessionState, asyncio.Future[None]]] = []
        store.subscribe(self._changed)

    def _changed(self, state: SessionState) -> None:
        self.states.append(state)
        for expected, waiting in self._waiting:
            if expected is state and not waiting.done():
                waiting.set_result(None)

    async def reached(self, state: SessionState) -> None:
        """Return when the session has that state."""
        if self.store.state is not state:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append((state, waiting))
            await waiting

    def watcher(self) -> Any:
        """Return a watcher that is equal to no other one."""
        return lambda event: self.events.append(event)


class StoreMachine(RuleBasedStateMachine):
    """Rules for any store."""

    has_connections = True
    world: World

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
        """Create the world of the stores."""

    def new_store(self) -> MetadataStore:
        return self.world.new_store()

    # --- sessions ---

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(asyncio.wait_for(call, 60))

    def start(self, name: str) -> None:
        session = self.sessions[name] = Session(self.new_store())
        self.model.sessions[name] = SessionModel()
        self.run(session.store.open())
        assert session.store.state is SessionState.CONNECTED
        assert session.states == [SessionState.CONNECTED]
        assert session.store.session_id != NO_SESSION
        self.run(session.store.sync())  # it may be connected to a server that lags

    def teardown(self) -> None:
        for session in self.sessions.values():
            self.run(session.store.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
        if self.has_connections:
            self.world.close()

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
        """The order of DISCONNECTED among the watches of a session is not part of the contract."""
        ended = [event for event in expected if event.kind is EventKind.DISCONNECTED]
        order = expected[: len(expected) - len(ended)]
        assert found[: len(order)] == order
        assert sorted(found[len(order) :], key=str) == sorted(ended, key=str)

    def check_stat(self, found: Stat, path: str) -> None:
        expected = self.model.stat(path)
        names = ("version", "cversion", "child_count")
        assert [getattr(found, each) for each in names] == [
            getattr(expected, each) for each in names
        ]
        owner = self.model.entries[path].owner
        assert found.ephemeral_owner == (
            NO_SESSION if owner == NO_OWNER else self.sessions[owner].store.session_id
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

    # --- faults, for stores with connections ---

    @precondition(lambda self: self.has_connections)
    @rule(name=SESSIONS, operations=st.lists(OPERATIONS, min_size=1, max_size=3), loss=LOSSES)
    def write_is_lost(self, name: str, operations: list[Operation], loss: Loss) -> None:
        session, model = self.sessions[name], self.model.sessions[name]
        self.world.lose(session.store, loss)
        with pytest.raises(UnknownOutcomeError):
            self.run(session.store.multi(operations))
        # The listener was called before the call has failed.
        assert session.states[1] is SessionState.SUSPENDED
        self.run(session.store.connected())
        assert session.states == [CONNECTED, SUSPENDED, CONNECTED]
        del session.states[1:]
        if loss is Loss.RESPONSE:
            self.expected(operations, name)
        model.disconnected()
        self.check_events()

    @precondition(lambda self: self.has_connections)
    @rule(name=SESSIONS, operations=st.lists(OPERATIONS, min_size=1, max_size=3))
    def is_suspended(self, name: str, operations: list[Operation]) -> None:
        """Another session writes while this one has no connection."""
        session, model = self.sessions[name], self.model.sessions[name]
        other = "second" if name == "first" else "first"
        self.world.block(session.store)
        self.run(session.reached(SUSPENDED))
        model.disconnected()
        with pytest.raises(NotConnectedError):
            self.run(session.store.multi(operations))
        with pytest.raises(NotConnectedError):
            self.run(session.store.exists("/a", session.watcher()))
        expected = self.expected(operations, other)
        self.compare(self.outcome(self.sessions[other].store.multi(operations)), expected)
        self.world.unblock(session.store)
        self.run(session.store.connected())
        assert session.states == [CONNECTED, SUSPENDED, CONNECTED]
        del session.states[1:]
        self.check_events()

    @precondition(lambda self: self.has_connections)
    @rule(name=SESSIONS)
    def session_expires(self, name: str) -> None:
        session, model = self.sessions[name], self.model.sessions[name]
        session_id = session.store.session_id
        self.world.block(session.store)
        self.run(session.reached(SUSPENDED))
        self.world.expire(session.store)
        self.world.unblock(session.store)
        with pytest.raises(SessionLostError):
            self.run(session.store.connected())
        assert session.states == [CONNECTED, SUSPENDED, SessionState.LOST]
        with pytest.raises(SessionLostError):
            self.run(session.store.create("/a"))
        model.disconnected()
        self.run(yielding())
        self.compare_events(session.events, model.events)
        del self.sessions[name], self.model.sessions[name]
        self.model.end_session(name)
        self.check_events()
        self.run(session.store.close())
        self.start(name)
        assert self.sessions[name].store.session_id != session_id

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
