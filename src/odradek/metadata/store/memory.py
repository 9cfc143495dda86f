"""The metadata store in memory: a session on a `MemoryEnsemble`.

A store without an ensemble creates its own, for a single broker: its contents survive `close` and
`open`.

Messages between a session and its server keep their order in both directions. A connection that
breaks loses the messages that were not delivered. A write that was in flight is then executed, or
is not, before the session is connected again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from odradek.environment.timers import OneLoopTimers, Timers
from odradek.metadata.store.ensemble import EnsembleConditions, MemoryEnsemble, Server
from odradek.metadata.store.interface import (
    ANY_VERSION,
    Create,
    Created,
    Delete,
    Node,
    NotConnectedError,
    Operation,
    Performed,
    SessionLostError,
    SessionState,
    Set,
    Stat,
    UnknownOutcomeError,
    Watcher,
    Written,
    check_size,
)
from odradek.metadata.store.store_session import StoreSession
from odradek.metadata.store.tree import Tree
from odradek.metadata.store.watches import Watches

Result = TypeVar("Result")


class _SentRequest:
    """A request in flight."""

    __slots__ = ("execute", "future", "is_write", "loses_response")

    def __init__(
        self, execute: Callable[[], Any], future: asyncio.Future[Any], is_write: bool
    ) -> None:
        self.execute = execute
        self.future = future
        self.is_write = is_write
        self.loses_response = False

    def respond(self, outcome: Any) -> None:
        if self.future.done():  # its caller was cancelled
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class _Connection:
    """The messages of one connection. `MemoryStore` moves them."""

    __slots__ = ("in_flight", "is_open", "messages", "requests", "server")

    def __init__(self, server: Server) -> None:
        self.server = server
        self.is_open = True
        self.requests: deque[_SentRequest] = deque()
        """Requests that have not reached the server."""
        self.in_flight: deque[_SentRequest] = deque()
        """Requests whose response the session has not received, in the order of sending."""
        self.messages: deque[Callable[[], None]] = deque()
        """Responses and watches that have not reached the session."""


class MemoryStore(StoreSession):
    """`MetadataStore` and `SingleNodeStore` on a `MemoryEnsemble`."""

    def __init__(
        self, ensemble: MemoryEnsemble | None = None, *, timers: Timers | None = None
    ) -> None:
        """Create a store that is not open.

        Args:
            ensemble: The servers. Default: a server of its own, for a single broker.
            timers: The timers of delayed messages. The ensemble uses them from outside the event
                loop of the session. Default: the timers of the loop on which the store is opened.
        """
        super().__init__()
        self.ensemble = ensemble or MemoryEnsemble(EnsembleConditions(multi_bytes_max=None))
        self._given_timers = timers
        self._timers: Timers | None = None
        self._watches = Watches()
        self._connection: _Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loses_next_request = False
        self._loses_next_response = False
        self._undecided: list[_SentRequest] = []

    @property
    def multi_bytes_max(self) -> int | None:
        return self.ensemble.conditions.multi_bytes_max

    # --- the session ---

    async def open(self) -> None:
        assert self.state is SessionState.CLOSED, "opened twice"
        self._loop = asyncio.get_running_loop()
        self._timers = self._given_timers or OneLoopTimers(self._loop)
        self._session_id = self.ensemble.begin_session(self)
        self._connect()

    async def close(self) -> None:
        session_id = self._session_id
        self.abandon()
        self.ensemble.end_session(session_id)

    def _connect(self) -> None:
        self._execute_undecided()
        try:
            server = self.ensemble.connect(self._session_id)
        except SessionLostError:
            self._change_session(SessionState.LOST)
            return
        if server is not None:
            self._connection = _Connection(server)
            self._change_session(SessionState.CONNECTED)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "the store was never opened"
        return self._loop

    def _later(self, delay_ms: int, call: Callable[..., None], *arguments: Any) -> None:
        """Call on the event loop of the session after the delay."""
        if delay_ms == 0:
            self._running_loop().call_soon(call, *arguments)
        else:
            assert self._timers is not None, "the store was never opened"
            self._timers.call_later(delay_ms / 1000, call, *arguments)

    # --- faults ---

    def disconnect(self) -> None:
        """Break the connection. The session is connected again, or is LOST if it has expired."""
        connection = self._connection
        if connection is not None and connection.is_open:
            connection.is_open = False
            self.ensemble.disconnected(self._session_id)
            self._keep_some_writes(connection)
            notice_ms = self.ensemble.delay_ms(self.ensemble.conditions.notice_ms)
            self._later(notice_ms, self._notice, connection)

    def lose_next_request(self) -> None:
        """Break the connection when the next write is sent. The write is not executed."""
        self._loses_next_request = True

    def lose_next_response(self) -> None:
        """Break the connection after the next write was executed, in place of its response."""
        self._loses_next_response = True

    def abandon(self) -> None:
        """Forget the session, as when the process ends. It lasts until its timeout."""
        self._watches.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            if connection.is_open:
                connection.is_open = False
                self.ensemble.disconnected(self._session_id)
                self._keep_some_writes(connection)
            self._fail_requests(connection)
        self._execute_undecided()
        self._end_session()

    def _notice(self, connection: _Connection) -> None:
        """Follow the loss of a connection."""
        if self._connection is not connection:
            return
        self._connection = None
        self._change_session(SessionState.SUSPENDED)
        self._fail_requests(connection)
        for watcher, event in self._watches.take_all():
            self._running_loop().call_soon(watcher, event)
        self._later(self.ensemble.delay_ms(self.ensemble.conditions.reconnect_ms), self.reconnect)

    def reconnect(self) -> None:
        """Connect again. Has no effect if there is a connection, or if the session is blocked."""
        if self.state is SessionState.SUSPENDED:
            self._connect()

    @staticmethod
    def _fail_requests(connection: _Connection) -> None:
        for request in connection.in_flight:
            request.respond(
                UnknownOutcomeError("the connection was lost before the response to a write")
                if request.is_write
                else NotConnectedError("the connection was lost before the response to a read")
            )

    def _keep_some_writes(self, connection: _Connection) -> None:
        """Keep a random number of the requests that are on their way when a connection breaks.

        They have reached the server, which executes them now, or later before the session is
        connected again.
        """
        count = self.ensemble.between(0, len(connection.requests))
        received = list(connection.requests)[:count]
        connection.requests.clear()
        self._undecided = [request for request in received if request.is_write]
        if self._undecided and self.ensemble.between(0, 1):
            self._execute_undecided()

    def _execute_undecided(self) -> None:
        undecided, self._undecided = self._undecided, []
        for request in undecided:
            _outcome(request)

    # --- messages ---

    def notify(self, operations: Sequence[Operation], results: Sequence[Written]) -> None:
        """Send the watches that a write fires. Called by the ensemble."""
        connection = self._connection
        if connection is None or not connection.is_open:
            return
        for watcher, event in self._watches.fired_by(operations, results):
            self._send_back(connection, partial(watcher, event))

    def _send_back(self, connection: _Connection, message: Callable[[], None]) -> None:
        connection.messages.append(message)
        latency_ms = self.ensemble.delay_ms(self.ensemble.conditions.latency_ms)
        self._later(latency_ms, self._receive, connection)

    @staticmethod
    def _receive(connection: _Connection) -> None:
        """Receive the next message. Each message has one timer, in any order."""
        if connection.is_open:
            connection.messages.popleft()()

    async def _request(self, execute: Callable[[], Result], *, is_write: bool = False) -> Result:
        connection = self._connection
        if connection is None:
            if self.state is SessionState.SUSPENDED:
                raise NotConnectedError("the session has no connection")
            raise SessionLostError(f"the session is {self.state.value}")
        future: asyncio.Future[Result] = self._running_loop().create_future()
        request = _SentRequest(execute, future, is_write)
        connection.in_flight.append(request)
        if is_write and self._takes_loss_of_request():
            self.disconnect()
        request.loses_response = is_write and self._takes_loss_of_response()
        if connection.is_open:
            connection.requests.append(request)
            latency_ms = self.ensemble.delay_ms(self.ensemble.conditions.latency_ms)
            self.ensemble.after(latency_ms, self._execute_next, connection)
        return await future

    def _takes_loss_of_request(self) -> bool:
        lost, self._loses_next_request = self._loses_next_request, False
        return lost or self.ensemble.happens(self.ensemble.conditions.requests_lost_per_mille)

    def _takes_loss_of_response(self) -> bool:
        lost, self._loses_next_response = self._loses_next_response, False
        return lost or self.ensemble.happens(self.ensemble.conditions.responses_lost_per_mille)

    def _execute_next(self, connection: _Connection) -> None:
        """Execute the request that was sent first, and send its response."""
        if not connection.is_open:
            return
        request = connection.requests.popleft()
        outcome = _outcome(request)

        def respond() -> None:
            if request.loses_response:
                self.disconnect()
                return
            connection.in_flight.popleft()
            request.respond(outcome)

        self._send_back(connection, respond)

    # --- requests ---

    async def perform(self, operations: Sequence[Operation]) -> list[Performed]:
        """Perform all operations, or none. Every write of the session calls this method."""
        check_size(operations, self.multi_bytes_max)
        session_id = self._session_id
        return await self._request(
            lambda: self.ensemble.write(operations, session_id), is_write=True
        )

    async def sync(self) -> None:
        await self._request(lambda: self.ensemble.synchronise(self._session_id))

    def _tree_of_server(self) -> Tree:
        assert self._connection is not None
        return self._connection.server.tree

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        def read() -> Node:
            node = self._tree_of_server().node(path)
            if watch is not None:
                self._watches.add_node(path, watch)
            return node

        return await self._request(read)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        def read() -> Stat | None:
            if watch is not None:
                self._watches.add_node(path, watch)
            node = self._tree_of_server().find(path)
            return None if node is None else node.stat

        return await self._request(read)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        def read() -> list[Node | None]:
            tree = self._tree_of_server()
            return [tree.find(path) for path in paths]

        return await self._request(read)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        def read() -> list[str]:
            names = self._tree_of_server().children(path)
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


def _outcome(request: _SentRequest) -> Any:
    """Execute a request. Return its result or its exception."""
    try:
        return request.execute()
    except Exception as error:  # noqa: BLE001 - the response has it
        return error
