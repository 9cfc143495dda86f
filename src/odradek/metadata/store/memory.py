"""The metadata store in memory: an ensemble of servers, and sessions on it.

A `MemoryEnsemble` has the tree. Each `MemoryStore` is a handle on one session of an ensemble. A
store without an ensemble creates its own, for a single broker: its contents survive `close` and
`open`.

Messages between a session and the ensemble keep their order in both directions. A request is
executed when it is sent. Its response, and the watches that other sessions fire, arrive later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from odradek.metadata.store.interface import (
    ANY_VERSION,
    NO_SESSION,
    Create,
    Created,
    Delete,
    Node,
    NotConnectedError,
    Operation,
    Performed,
    SessionListener,
    SessionLostError,
    SessionState,
    Set,
    Stat,
    UnknownOutcomeError,
    Watcher,
    Written,
    changes_in,
    check_size,
)
from odradek.metadata.store.session_events import SessionEvents
from odradek.metadata.store.tree import Tree
from odradek.metadata.store.watches import Fired, Watches

Result = TypeVar("Result")


class MemoryEnsemble:
    """The servers of a metadata store, whose sessions can be disconnected and can expire.

    All sessions use it on one thread.
    """

    def __init__(self) -> None:
        self.tree = Tree()
        self.change_count = 0
        self._zxid = 0
        self._sessions: dict[int, MemoryStore] = {}
        self._sessions_begun = 0

    def begin_session(self, store: MemoryStore) -> int:
        self._sessions_begun += 1
        self._sessions[self._sessions_begun] = store
        return self._sessions_begun

    def has_session(self, session_id: int) -> bool:
        return session_id in self._sessions

    def end_session(self, session_id: int) -> None:
        """Delete the ephemeral nodes of the session. It can no longer write."""
        if self._sessions.pop(session_id, None) is None:
            return
        paths = self.tree.ephemerals_of(session_id)
        if paths:
            self._commit([Delete(path) for path in paths], session_id)

    def expire(self, session_id: int) -> None:
        """End a session as after its timeout: it is disconnected first, and then LOST."""
        store = self._sessions.get(session_id)
        self.end_session(session_id)
        if store is not None:
            store.disconnect()

    def write(self, operations: Sequence[Operation], session_id: int) -> list[Performed]:
        if session_id not in self._sessions:
            raise SessionLostError("the session has expired")
        return self._commit(operations, session_id)

    def _commit(self, operations: Sequence[Operation], session_id: int) -> list[Performed]:
        results = self.tree.apply(operations, session_id, self._zxid + 1)
        self._zxid += 1
        self.change_count += changes_in(operations)
        written = [result.written for result in results]
        for store in self._sessions.values():
            store.notify(operations, written)
        return results


class _Request(Generic[Result]):
    """A request in flight. The response sets the future."""

    __slots__ = ("future", "is_write")

    def __init__(self, future: asyncio.Future[Result], is_write: bool) -> None:
        self.future = future
        self.is_write = is_write

    def respond(self, outcome: Result | Exception) -> None:
        if self.future.done():  # its caller was cancelled
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class _Connection:
    """A connection of a session. Its messages to the session arrive in order, or not at all."""

    __slots__ = ("in_flight", "is_open", "messages")

    def __init__(self) -> None:
        self.is_open = True
        self.in_flight: deque[_Request[object]] = deque()
        self.messages: deque[Callable[[], None]] = deque()

    def send(self, loop: asyncio.AbstractEventLoop, message: Callable[[], None]) -> None:
        self.messages.append(message)
        loop.call_soon(self._receive)

    def _receive(self) -> None:
        if self.is_open:
            self.messages.popleft()()


class MemoryStore:
    """`MetadataStore` and `SingleNodeStore` on a `MemoryEnsemble`."""

    def __init__(
        self, ensemble: MemoryEnsemble | None = None, *, multi_bytes_max: int | None = None
    ) -> None:
        self.ensemble = MemoryEnsemble() if ensemble is None else ensemble
        self.multi_bytes_max = multi_bytes_max
        self._events = SessionEvents()
        self._session_id = NO_SESSION
        self._watches = Watches()
        self._connection: _Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cut_at_next_write: str | None = None

    # --- the session ---

    @property
    def state(self) -> SessionState:
        return self._events.state

    @property
    def session_id(self) -> int:
        return self._session_id

    def subscribe(self, listener: SessionListener) -> None:
        self._events.subscribe(listener)

    async def open(self) -> None:
        assert self.state is SessionState.CLOSED, "opened twice"
        self._loop = asyncio.get_running_loop()
        self._session_id = self.ensemble.begin_session(self)
        self._connect()

    async def close(self) -> None:
        session_id, self._session_id = self._session_id, NO_SESSION
        self._watches.clear()
        self._break_connection()
        self._events.change(SessionState.CLOSED)
        self.ensemble.end_session(session_id)

    async def connected(self) -> None:
        await self._events.connected()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "the store was never opened"
        return self._loop

    def _connect(self) -> None:
        if not self.ensemble.has_session(self._session_id):
            self._events.change(SessionState.LOST)
            return
        self._connection = _Connection()
        self._events.change(SessionState.CONNECTED)

    def _break_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.is_open = False
        for request in connection.in_flight:
            request.respond(
                UnknownOutcomeError("the connection was lost before the response to a write")
                if request.is_write
                else NotConnectedError("the connection was lost before the response to a read")
            )

    # --- faults ---

    def disconnect(self) -> None:
        """Break the connection. The session is connected again, or is LOST if it has expired."""
        if self._connection is not None:
            self._running_loop().call_soon(self._disconnected, self._connection)
            self._connection.is_open = False

    def abandon(self) -> None:
        """Forget the session, as when the process ends. It lasts until `MemoryEnsemble.expire`."""
        self._watches.clear()
        self._break_connection()
        self._session_id = NO_SESSION
        self._events.change(SessionState.CLOSED)

    def cut_before_next_write(self) -> None:
        """Break the connection when the next write is sent. The write is not executed."""
        self._cut_at_next_write = "before"

    def cut_after_next_write(self) -> None:
        """Break the connection when the next write was executed. Its response is lost."""
        self._cut_at_next_write = "after"

    def _disconnected(self, connection: _Connection) -> None:
        if self._connection is not connection:
            return
        self._break_connection()
        self._events.change(SessionState.SUSPENDED)
        for watcher, event in self._watches.take_all():
            self._running_loop().call_soon(watcher, event)
        self._running_loop().call_soon(self._reconnect)

    def _reconnect(self) -> None:
        if self.state is SessionState.SUSPENDED:
            self._connect()

    # --- requests ---

    def notify(self, operations: Sequence[Operation], results: Sequence[Written]) -> None:
        """Send the watches that a write fires. Called by the ensemble."""
        connection = self._connection
        if connection is None or not connection.is_open:
            return
        for fired in self._watches.fired_by(operations, results):
            connection.send(self._running_loop(), _calling(fired))

    async def _request(self, execute: Callable[[], Result], *, is_write: bool = False) -> Result:
        connection = self._connection
        if connection is None:
            if self.state is SessionState.SUSPENDED:
                raise NotConnectedError("the session has no connection")
            raise SessionLostError(f"the session is {self.state.value}")
        loop = self._running_loop()
        request: _Request[Result] = _Request(loop.create_future(), is_write)
        connection.in_flight.append(request)  # type: ignore[arg-type]
        cut = self._cut_at_next_write if is_write else None
        if cut is not None:
            self._cut_at_next_write = None
        if connection.is_open and cut != "before":
            outcome: Result | Exception
            try:
                outcome = execute()
            except Exception as error:  # noqa: BLE001 - the response has it
                outcome = error
            connection.send(loop, lambda: self._respond(connection, outcome))
        if cut is not None:
            self.disconnect()
        return await request.future

    @staticmethod
    def _respond(connection: _Connection, outcome: object) -> None:
        connection.in_flight.popleft().respond(outcome)

    async def perform(self, operations: Sequence[Operation]) -> list[Performed]:
        """Perform all operations, or none. Every write of the session calls this method."""
        check_size(operations, self.multi_bytes_max)
        return await self._request(
            lambda: self.ensemble.write(operations, self._session_id), is_write=True
        )

    async def sync(self) -> None:
        await self._request(lambda: None)

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        def read() -> Node:
            node = self.ensemble.tree.node(path)
            if watch is not None:
                self._watches.add_node(path, watch)
            return node

        return await self._request(read)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        def read() -> Stat | None:
            if watch is not None:
                self._watches.add_node(path, watch)
            node = self.ensemble.tree.find(path)
            return None if node is None else node.stat

        return await self._request(read)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._request(lambda: [self.ensemble.tree.find(path) for path in paths])

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        def read() -> list[str]:
            names = self.ensemble.tree.children(path)
            if watch is not None:
                self._watches.add_children(path, watch)
            return names

        return await self._request(read)

    async def change_count(self) -> int:
        return await self._request(lambda: self.ensemble.change_count)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        ((written, stat),) = await self.perform([Create(path, data, ephemeral, sequential)])
        assert stat is not None
        return Created(written.path, stat)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        ((_, stat),) = await self.perform([Set(path, data, version)])
        assert stat is not None
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.perform([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Written]:
        return [written for written, _ in await self.perform(operations)]


def _calling(fired: Fired) -> Callable[[], None]:
    watcher, event = fired
    return lambda: watcher(event)
