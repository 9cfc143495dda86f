"""The metadata store of a cluster whose brokers have a thread each: an ensemble on its own thread.

`MemoryEnsemble` and its sessions run on one thread. `StoreThread` is that thread. A `ThreadedStore`
is the session of a broker on another event loop: it passes calls on to a `MemoryStore` there, and
passes results, watches and states back. Both directions keep their order, so the contract of the
store holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from odradek.environment.timers import OneLoopTimers
from odradek.metadata.store.ensemble import EnsembleConditions, MemoryEnsemble
from odradek.metadata.store.interface import (
    ANY_VERSION,
    Created,
    Node,
    Operation,
    SessionState,
    Stat,
    StoreFailure,
    UnknownOutcomeError,
    Watcher,
    WatchEvent,
    Written,
)
from odradek.metadata.store.memory import MemoryStore
from odradek.metadata.store.store_session import StoreSession

CALL_TIMEOUT_S = 60.0
Result = TypeVar("Result")


class StoreThread:
    """The thread of an ensemble. Methods may be called from each other thread."""

    def __init__(self, conditions: EnsembleConditions) -> None:
        self._conditions = conditions
        self.loop = asyncio.new_event_loop()
        self.ensemble = MemoryEnsemble(conditions, timers=OneLoopTimers(self.loop))
        self._thread = threading.Thread(target=self._run, name="odradek-store", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread. No store may use it afterwards."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def call(self, function: Callable[[MemoryEnsemble], Result]) -> Result:
        """Run `function(ensemble)` on the thread and return its result."""

        async def run() -> Result:
            return function(self.ensemble)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(CALL_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self.loop.run_forever()
            if pending := asyncio.all_tasks(self.loop):
                for task in pending:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(pending))
        finally:
            self.loop.close()


class ThreadedStore(StoreSession):
    """`MetadataStore` on the running event loop, with a session on a `StoreThread`.

    `_reported`, the open session, belongs to the thread. All else belongs to the event loop.
    """

    def __init__(self, thread: StoreThread) -> None:
        super().__init__()
        self._thread = thread
        self._remote = MemoryStore(thread.ensemble)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened = 0
        self._reported = 0
        self._abandoned = False
        self._calls: set[asyncio.Future[Any]] = set()
        self._remote.subscribe(self._state_changed)

    @property
    def multi_bytes_max(self) -> int | None:
        return self._remote.multi_bytes_max

    # --- the session ---

    async def open(self) -> None:
        assert self.state is SessionState.CLOSED, "opened twice"
        if self._abandoned:
            raise StoreFailure("the process has ended")
        self._loop = asyncio.get_running_loop()
        self._opened += 1
        opened = self._opened

        async def open_there() -> None:
            self._reported = opened
            await self._remote.open()

        await self._call(open_there)

    async def close(self) -> None:
        """End the session. The calls in flight fail as if the connection was lost."""
        self._opened += 1  # nothing that the thread has passed on is delivered
        calls, self._calls = self._calls, set()
        for each in calls:
            if not each.done():
                each.set_exception(UnknownOutcomeError("the session was closed before a response"))
        self._end_session()
        await self._call(self._remote.close)

    def abandon(self) -> None:
        """Forget the session, as when the process ends: it lasts until its timeout.

        May be called from any thread. Every later call fails.
        """
        self._abandoned = True
        self._thread.call(lambda _: self._remote.abandon())

    def _state_changed(self, state: SessionState) -> None:
        """On the store's thread."""
        self._post(self._reported, self._follow, state, self._remote.session_id)

    def _follow(self, state: SessionState, session_id: int) -> None:
        self._session_id = session_id
        self._change_session(state)

    # --- calls ---

    def _post(self, opened: int, call: Callable[..., None], *arguments: Any) -> None:
        """Call on the broker's event loop, unless the session was closed since."""

        def deliver() -> None:
            if self._opened == opened:
                call(*arguments)

        assert self._loop is not None, "the store was never opened"
        with contextlib.suppress(RuntimeError):  # the loop of a killed broker is closed
            self._loop.call_soon_threadsafe(deliver)

    async def _call(self, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine on the store's thread, in the order of the calls."""
        loop, opened = asyncio.get_running_loop(), self._opened
        pending: asyncio.Future[Result] = loop.create_future()
        self._calls.add(pending)

        def run() -> None:
            task = self._thread.loop.create_task(start())
            task.add_done_callback(done)

        def done(task: asyncio.Task[Result]) -> None:
            if not task.cancelled():
                task.exception()  # it is retrieved, although the session may be closed by now
            self._post(opened, self._complete, pending, task)

        self._thread.loop.call_soon_threadsafe(run)
        try:
            return await pending
        finally:
            self._calls.discard(pending)

    @staticmethod
    def _complete(pending: asyncio.Future[Result], task: asyncio.Task[Result]) -> None:
        error = task.exception()
        if pending.done():  # its caller was cancelled
            return
        if error is None:
            pending.set_result(task.result())
        else:
            pending.set_exception(error)

    def _watcher(self, watch: Watcher | None) -> Watcher | None:
        return None if watch is None else _PassedOn(self, watch, self._opened)

    def pass_on(self, opened: int, watch: Watcher, event: WatchEvent) -> None:
        """Call a watcher on the broker's event loop."""
        self._post(opened, watch, event)

    # --- requests ---

    async def sync(self) -> None:
        await self._call(self._remote.sync)

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        watcher = self._watcher(watch)
        return await self._call(lambda: self._remote.get(path, watcher))

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        watcher = self._watcher(watch)
        return await self._call(lambda: self._remote.exists(path, watcher))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._call(lambda: self._remote.get_many(paths))

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        watcher = self._watcher(watch)
        return await self._call(lambda: self._remote.children(path, watcher))

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        return await self._call(
            lambda: self._remote.create(path, data, ephemeral=ephemeral, sequential=sequential)
        )

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._call(lambda: self._remote.set(path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call(lambda: self._remote.delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[Written]:
        return await self._call(lambda: self._remote.multi(operations))


class _PassedOn:
    """A watcher on the store's thread. Two are equal if they pass on to the same watcher.

    Registrations of a store are a set, so the same watcher is called once.
    """

    __slots__ = ("_opened", "_store", "_watch")

    def __init__(self, store: ThreadedStore, watch: Watcher, opened: int) -> None:
        self._store = store
        self._watch = watch
        self._opened = opened

    def __call__(self, event: WatchEvent) -> None:
        self._store.pass_on(self._opened, self._watch, event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PassedOn) and self._watch == other._watch

    def __hash__(self) -> int:
        return hash(self._watch)
