"""The metadata store on ZooKeeper.

The event loop starts requests by kazoo's ``..._async`` calls, which do not block. kazoo's thread
passes results, watches and states on by `call_soon_threadsafe`, in the order in which the
connection delivered them. All state of the store belongs to the event loop.

kazoo drops all watches when the connection is lost, so the store fires them with DISCONNECTED.
A response that was lost makes the outcome of a write unknown. That includes a request which kazoo
had not sent yet, because kazoo does not report the difference.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any, TypeVar

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat

from odradek.environment.clock import Clock, SystemClock
from odradek.environment.executors import Executors, Pool
from odradek.environment.thread_pool import ThreadExecutors
from odradek.environment.timers import LoopTimers, Timer, Timers
from odradek.metadata.store.interface import (
    ANY_VERSION,
    MULTI_BYTES_MAX,
    NO_SESSION,
    BadVersionError,
    Check,
    Create,
    Created,
    Delete,
    EventKind,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotConnectedError,
    NotEmptyError,
    Operation,
    SessionLostError,
    SessionState,
    Set,
    Stat,
    StoreError,
    StoreFailure,
    UnknownOutcomeError,
    Watcher,
    WatchEvent,
    Written,
    check_path,
    check_size,
)
from odradek.metadata.store.store_session import StoreSession
from odradek.metadata.store.watchdog import SessionWatchdog
from odradek.metadata.store.watches import Watches
from odradek.metadata.store.zookeeper_client import Credentials, ZooKeeperAddress, create_client
from odradek.slicing import end_slice

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 18_000
"""Kafka's default of ``zookeeper.session.timeout.ms``."""

WATCHDOG_SHARE = 3
"""The watchdog ends the session when the event loop is blocked for this part of its timeout."""

OPERATIONS_PER_SLICE = 50
"""Operations of a transaction that are prepared in one time slice: kazoo takes 10 us for each."""
GETS_IN_FLIGHT_MAX = 200
"""Requests of one `get_many` that are in flight at the same time. One time slice starts them."""
POSTPONED_MAX = 10_000
"""Calls that wait for the preparation of a transaction, which takes some milliseconds.

Further calls fail with StoreFailure. A broker makes a few hundred calls in this time.
"""

_TREE_ERRORS: dict[type[Exception], type[StoreError]] = {
    exceptions.NoNodeError: NoNodeError,
    exceptions.NodeExistsError: NodeExistsError,
    exceptions.BadVersionError: BadVersionError,
    exceptions.NotEmptyError: NotEmptyError,
    exceptions.NoChildrenForEphemeralsError: NoChildrenForEphemeralsError,
}
_REFUSALS = (
    exceptions.AuthFailedError,
    exceptions.BadArgumentsError,
    exceptions.InvalidACLError,
    exceptions.NoAuthError,
    exceptions.QuotaExceededError,
    exceptions.SessionMovedError,
    exceptions.ThrottledOpError,
    exceptions.UnimplementedError,
)
"""Errors with which the server has executed nothing."""

_EVENTS = {
    EventType.CREATED: EventKind.CREATED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHILD: EventKind.CHILDREN,
}

Result = TypeVar("Result")
Convert = Callable[[Any], Result]


class _Request:
    """A request in flight: its future, and the conversion of kazoo's value."""

    __slots__ = ("convert", "future", "path", "writes")

    def __init__(
        self, future: asyncio.Future[Any], convert: Convert[Any], path: str, writes: bool
    ) -> None:
        self.future = future
        self.convert = convert
        self.path = path
        self.writes = writes

    def respond(self, value: Any) -> None:
        try:
            converted = self.convert(value)
        except (StoreError, StoreFailure, UnknownOutcomeError) as error:
            self.fail(error)
            return
        if not self.future.done():  # its caller was not cancelled
            self.future.set_result(converted)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _Client:
    """A client of kazoo with its events: one session. Events are passed on to the event loop."""

    def __init__(self, store: ZooKeeperStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self.kazoo: KazooClient = store.create_kazoo_client(self)
        self.session_timeout_ms = store.session_timeout_ms
        self.requests: dict[Any, _Request] = {}
        self.stopped = threading.Event()
        self._ending = threading.Lock()

    # On kazoo's thread.

    def completed(self, result: Any) -> None:
        self._post(self._store.complete, result)

    def negotiated(self, session_timeout_ms: int) -> None:
        if session_timeout_ms > 0:  # otherwise the session has expired
            self.session_timeout_ms = session_timeout_ms

    def state_changed(self, state: str) -> None:
        identity = self.kazoo.client_id
        self._post(self._store.change_state, state, NO_SESSION if identity is None else identity[0])

    def watched(self, event: WatchedEvent) -> None:
        if event.type in _EVENTS:
            self._post(self._store.fire, WatchEvent(_EVENTS[event.type], event.path))

    def _post(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, self, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    # On any thread but kazoo's.

    def end(self) -> None:
        """End the session. Blocks until kazoo's thread has ended."""
        with self._ending:
            if self.stopped.is_set():
                return
            self.stopped.set()
            try:
                self.kazoo.stop()
                self.kazoo.close()
            except Exception:
                logger.exception("the ZooKeeper session is not closed and lasts until its time-out")


class ZooKeeperStore(StoreSession):
    """`MetadataStore` on a session of ZooKeeper."""

    multi_bytes_max = MULTI_BYTES_MAX

    def __init__(
        self,
        address: ZooKeeperAddress,
        credentials: Credentials | None = None,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int = SESSION_TIMEOUT_MS,
        clock: Clock | None = None,
        timers: Timers | None = None,
        executors: Executors | None = None,
    ) -> None:
        """Create a store that is not open.

        Args:
            address: The ensemble, and the root of the store in it.
            credentials: The identity of the client.
            session_timeout_ms: The session ends when ZooKeeper hears nothing for so long. ZooKeeper
                may grant another timeout. A third of it is the limit of the watchdog.
            connection_timeout_ms: Limit of the wait for the first connection.
            clock: The time of the watchdog.
            timers: The timers of the first connection and of the beats for the watchdog.
            executors: The thread that closes clients, and the thread of the watchdog.
        """
        super().__init__()
        self._address = address
        self._credentials = credentials
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms
        self._clock: Clock = clock or SystemClock()
        self._timers: Timers = timers or LoopTimers()
        self._executors: Executors = executors or ThreadExecutors()
        self._watches = Watches()
        self._client: _Client | None = None
        self._first_connection: asyncio.Future[None] | None = None
        self._closing: Pool | None = None
        self._watchdog: SessionWatchdog | None = None
        self._preparing: asyncio.Task[None] | None = None
        """The preparation of a long transaction in time slices. Calls that follow wait for it."""
        self._postponed: deque[Callable[[], None]] = deque()
        """The calls that began during the preparation, in their order."""
        self._beat_timer: Timer | None = None

    def create_kazoo_client(self, events: _Client) -> KazooClient:
        return create_client(self._address, self._session_timeout_ms, self._credentials, events)

    # --- the session ---

    @property
    def session_timeout_ms(self) -> int:
        """The timeout that the server of the last connection has granted, or the requested one."""
        client = self._client
        return self._session_timeout_ms if client is None else client.session_timeout_ms

    async def open(self) -> None:
        """Begin a session. Raise StoreFailure if ZooKeeper cannot be reached in time."""
        assert self._client is None, "opened twice"
        loop = asyncio.get_running_loop()
        client = self._client = _Client(self, loop)
        self._closing = self._executors.pool(1, "odradek-zookeeper")
        first = self._first_connection = loop.create_future()
        timeout_s = self._connection_timeout_ms / 1000
        timer = self._timers.call_later(timeout_s, self._give_up, first)
        try:
            client.kazoo.start_async()
            await first
            self._start_watchdog(client)
        except BaseException:
            await self.close()
            raise
        finally:
            timer.cancel()

    async def create_root(self) -> None:
        if await self.exists("/") is not None:
            return
        # Below that root kazoo cannot create its parents.
        store = ZooKeeperStore(
            ZooKeeperAddress(self._address.hosts),
            self._credentials,
            session_timeout_ms=self._session_timeout_ms,
            connection_timeout_ms=self._connection_timeout_ms,
            clock=self._clock,
            timers=self._timers,
            executors=self._executors,
        )
        await store.open()
        try:
            path = ""
            for name in self._address.chroot.strip("/").split("/"):
                path += f"/{name}"
                with contextlib.suppress(NodeExistsError):
                    await store.create(path)
        except UnknownOutcomeError as error:
            raise StoreFailure(f"the connection was lost at the creation of {path}") from error
        finally:
            await store.close()

    def _give_up(self, first_connection: asyncio.Future[None]) -> None:
        if not first_connection.done():
            first_connection.set_exception(
                StoreFailure(
                    f"no connection to ZooKeeper at {self._address.hosts} within "
                    f"{self._connection_timeout_ms} ms. Check that it runs and is reachable"
                )
            )

    async def close(self) -> None:
        self._watches.clear()
        client, self._client = self._client, None
        self._end_session()
        self._watchdog = None
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        if self._preparing is not None:
            self._preparing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._preparing
        closing, self._closing = self._closing, None
        if closing is None:
            return
        if client is not None:
            self._fail_requests(client)
            await asyncio.get_running_loop().run_in_executor(closing, client.end)
        closing.shutdown(wait=False)

    def _start_watchdog(self, client: _Client) -> None:
        limit_ms = self.session_timeout_ms / WATCHDOG_SHARE

        def end_session() -> None:
            logger.warning(
                "the event loop was blocked for a third of the session timeout of %d ms, so the "
                "session with ZooKeeper ends",
                self.session_timeout_ms,
            )
            client.end()

        watchdog = self._watchdog = SessionWatchdog(limit_ms, self._clock, end_session)
        run = partial(watchdog.run, client.stopped.wait)
        self._executors.start_thread(run, "odradek-session-watchdog")

        def beat() -> None:
            watchdog.beat()
            self._beat_timer = self._timers.call_later(watchdog.beat_interval_ms / 1000, beat)

        beat()

    def change_state(self, client: _Client, state: str, session_id: int) -> None:
        """Follow a state of kazoo's client."""
        if client is not self._client:
            return
        if state == "CONNECTED":
            self._session_id = session_id
            if self._watchdog is not None:  # another server may grant another timeout
                self._watchdog.change_limit(client.session_timeout_ms / WATCHDOG_SHARE)
                logger.info("connected to ZooKeeper at %s again", self._address.hosts)
            self._change_session(SessionState.CONNECTED)
            if self._first_connection is not None and not self._first_connection.done():
                self._first_connection.set_result(None)
        elif state == "SUSPENDED":
            self._suspend()
        else:
            self._lose(client)

    def _suspend(self) -> None:
        if self._state is not SessionState.CONNECTED:
            return
        logger.warning(
            "the connection to ZooKeeper at %s is lost. The session ends after %d ms without one. "
            "Check that its servers run and that this machine reaches them",
            self._address.hosts,
            self.session_timeout_ms,
        )
        self._change_session(SessionState.SUSPENDED)
        loop = asyncio.get_running_loop()
        for watcher, event in self._watches.take_all():
            loop.call_soon(watcher, event)

    def _lose(self, client: _Client) -> None:
        self._suspend()
        if self._first_connection is not None and not self._first_connection.done():
            self._first_connection.set_exception(
                StoreFailure(f"ZooKeeper at {self._address.hosts} has refused the session")
            )
        self._change_session(SessionState.LOST)
        self._fail_requests(client)
        # Ends kazoo's thread, which would try to connect again.
        assert self._closing is not None
        self._closing.submit(client.end)

    @staticmethod
    def _fail_requests(client: _Client) -> None:
        """Fail all requests in flight, because kazoo forgets requests in some of its races."""
        requests, client.requests = client.requests, {}
        for request in requests.values():
            request.fail(_lost(request.writes))

    # --- requests ---

    def _start(
        self,
        start: Callable[[KazooClient], Any],
        convert: Convert[Result],
        path: str,
        *,
        writes: bool = False,
    ) -> asyncio.Future[Result]:
        """Start a request of kazoo. Return the future of its converted value."""
        check_path(path)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        request = _Request(future, convert, path, writes)
        if self._preparing is None:
            self._send(start, request)
        else:
            self._postpone(partial(self._send_postponed, start, request))
        return future

    def _postpone(self, call: Callable[[], None]) -> None:
        """Make the call after the preparation that runs, and after the calls before it."""
        if len(self._postponed) >= POSTPONED_MAX:
            raise StoreFailure(
                f"{POSTPONED_MAX} calls wait for the preparation of a write. Try again later"
            )
        self._postponed.append(call)

    def _send(self, start: Callable[[KazooClient], Any], request: _Request) -> None:
        """Send a request. Raise an error if the session has no connection."""
        client = self._client
        if self._state is SessionState.SUSPENDED:
            raise NotConnectedError("the session has no connection to ZooKeeper")
        if self._state is not SessionState.CONNECTED or client is None:
            raise SessionLostError(f"the session is {self._state.value}")
        # The completion cannot run before this method has returned, because it runs on this loop.
        client.requests[start(client.kazoo)] = request

    def _send_postponed(self, start: Callable[[KazooClient], Any], request: _Request) -> None:
        try:
            self._send(start, request)
        except Exception as error:  # noqa: BLE001 - the caller gets it, and the next call is made
            request.fail(error)

    def complete(self, client: _Client, result: Any) -> None:
        """Complete the request with that result. Results within kazoo have no request."""
        request = client.requests.pop(result, None)
        if request is None:
            return
        error = result.exception
        if error is None:
            request.respond(result.value)
            return
        if isinstance(error, exceptions.ConnectionLoss) and client is self._client:
            self._suspend()  # the listeners are called before a failed call continues
        request.fail(_converted(error, request.path, request.writes))

    def fire(self, client: _Client, event: WatchEvent) -> None:
        """Call the watchers of an event."""
        if client is not self._client:
            return
        loop = asyncio.get_running_loop()
        for watcher, fired in self._watches.take(event):
            loop.call_soon(watcher, fired)

    def _watch(self, watch: Watcher | None) -> Callable[[WatchedEvent], None] | None:
        """Return kazoo's watcher. All are equal, because `Watches` knows which to call."""
        client = self._client
        return None if watch is None or client is None else client.watched

    async def sync(self) -> None:
        await self._start(methodcaller("sync_async", "/"), _nothing, "/")

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        def convert(value: tuple[bytes, ZnodeStat]) -> Node:
            if watch is not None:
                self._watches.add_node(path, watch)
            return _node(value)

        return await self._start(
            lambda kazoo: kazoo.get_async(path, self._watch(watch)), convert, path
        )

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        def convert(value: ZnodeStat | None) -> Stat | None:
            if watch is not None:
                self._watches.add_node(path, watch)
            return None if value is None else _stat(value)

        return await self._start(
            lambda kazoo: kazoo.exists_async(path, self._watch(watch)), convert, path
        )

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        nodes: list[Node | None] = []
        for begin in range(0, len(paths), GETS_IN_FLIGHT_MAX):
            futures = [
                self._start(methodcaller("get_async", path), _node, path)
                for path in paths[begin : begin + GETS_IN_FLIGHT_MAX]
            ]
            for outcome in await asyncio.gather(*futures, return_exceptions=True):
                if isinstance(outcome, NoNodeError):
                    nodes.append(None)
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    nodes.append(outcome)
        return nodes

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        def convert(value: list[str]) -> list[str]:
            if watch is not None:
                self._watches.add_children(path, watch)
            return sorted(value)

        return await self._start(
            lambda kazoo: kazoo.get_children_async(path, self._watch(watch)), convert, path
        )

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        check_size([Create(path, data)], self.multi_bytes_max)
        return await self._start(
            lambda kazoo: kazoo.create_async(
                path, data, ephemeral=ephemeral, sequence=sequential, include_data=True
            ),
            _created,
            path,
            writes=True,
        )

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        check_size([Set(path, data)], self.multi_bytes_max)
        return await self._start(
            lambda kazoo: kazoo.set_async(path, data, version), _stat, path, writes=True
        )

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._start(
            lambda kazoo: kazoo.delete_async(path, version), _nothing, path, writes=True
        )

    async def multi(self, operations: Sequence[Operation]) -> list[Written]:
        check_size(operations, self.multi_bytes_max)
        convert = partial(_written, operations)
        if len(operations) <= OPERATIONS_PER_SLICE:
            return await self._start(
                partial(_commit, operations=operations), convert, "/", writes=True
            )
        future: asyncio.Future[list[Written]] = asyncio.get_running_loop().create_future()
        request = _Request(future, convert, "/", True)
        if self._preparing is None:
            self._prepare(operations, request)
        else:
            self._postpone(partial(self._prepare, operations, request))
        return await future

    def _prepare(self, operations: Sequence[Operation], request: _Request) -> None:
        """Send a long transaction, after its preparation in a task.

        The task does not end with the caller of the transaction, because a call that was begun is
        executed.
        """
        task = asyncio.get_running_loop().create_task(self._prepared(operations, request))
        self._preparing = task
        task.add_done_callback(partial(self._preparation_ended, request))

    async def _prepared(self, operations: Sequence[Operation], request: _Request) -> None:
        client, transaction = self._client, None
        if client is not None:
            transaction = client.kazoo.transaction()
            for count, operation in enumerate(operations, 1):
                _add(transaction, operation)
                if not count % OPERATIONS_PER_SLICE:
                    await end_slice()

        def start(kazoo: KazooClient) -> Any:
            if transaction is None or transaction.client is not kazoo:
                raise SessionLostError("the session began while the write was prepared")
            return transaction.commit_async()

        self._send(start, request)

    def _preparation_ended(self, request: _Request, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            request.fail(SessionLostError("the session was closed before the write was sent"))
        elif (error := task.exception()) is not None:
            request.fail(error)
        self._preparing = None
        while self._postponed and self._preparing is None:
            self._postponed.popleft()()


def _commit(kazoo: KazooClient, operations: Sequence[Operation]) -> Any:
    """Prepare and send a short transaction."""
    transaction = kazoo.transaction()
    for operation in operations:
        _add(transaction, operation)
    return transaction.commit_async()


def _add(transaction: Any, operation: Operation) -> None:
    check_path(operation.path)
    if isinstance(operation, Create):
        path, data, ephemeral, sequential = operation
        transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
    elif isinstance(operation, Set):
        transaction.set_data(*operation)
    elif isinstance(operation, Delete):
        transaction.delete(*operation)
    else:
        transaction.check(*operation)


def _written(operations: Sequence[Operation], results: Sequence[Any]) -> list[Written]:
    """Convert the results of a transaction. Raise the error of the operation that failed.

    ZooKeeper reports the operations before the failed one as rolled back.
    """
    written = []
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, exceptions.RolledBackError):
            continue
        if isinstance(result, Exception):
            raise _converted(result, operation.path, writes=True)
        if isinstance(operation, Create):
            written.append(Written(result, 0))
        elif isinstance(operation, Set):
            written.append(Written(operation.path, result.version))
        else:
            assert isinstance(operation, Delete | Check)
            written.append(Written(operation.path, ANY_VERSION))
    return written


def _converted(error: BaseException, path: str, writes: bool) -> Exception:
    """Return the store's error for an error of kazoo."""
    for theirs, ours in _TREE_ERRORS.items():
        if isinstance(error, theirs):
            return ours(path)
    if isinstance(error, exceptions.SessionExpiredError):
        return SessionLostError("the session has expired")
    if isinstance(error, _REFUSALS):
        return StoreFailure(f"ZooKeeper has refused a request to {path}: {error!r}")
    return _lost(writes)


def _lost(writes: bool) -> Exception:
    if writes:
        return UnknownOutcomeError("the connection was lost before the response to a write")
    return NotConnectedError("the connection was lost before the response to a read")


def _stat(value: ZnodeStat) -> Stat:
    return Stat(
        value.czxid,
        value.mzxid,
        value.pzxid,
        value.version,
        value.cversion,
        value.ephemeralOwner,
        value.numChildren,
    )


def _node(value: tuple[bytes, ZnodeStat]) -> Node:
    data, stat = value
    return Node(data or b"", _stat(stat))


def _created(value: tuple[str, ZnodeStat]) -> Created:
    path, stat = value
    return Created(path, _stat(stat))


def _nothing(_: Any) -> None:
    return None
