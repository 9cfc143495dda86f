"""The metadata store of one simulated broker: durable, with delays, and full when its disk is full.

The ensemble belongs to the machine and survives every crash, as SQLite's file does: a write is on
the disk when it returns. A process that dies while it waits for a write does not learn whether the
write happened. Calls are executed in the order in which they begin, at random moments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from odradek.metadata.store.ensemble import MemoryEnsemble
from odradek.metadata.store.interface import (
    ANY_VERSION,
    Created,
    Delete,
    Node,
    Operation,
    SessionListener,
    SessionState,
    Set,
    Stat,
    StoreFailure,
    Watcher,
    Written,
)
from odradek.metadata.store.memory import MemoryStore
from tests.simulation.disk import Disk
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.executors import Threads
from tests.simulation.scheduler import MILLISECOND

DELAY_US_MAX = 3 * MILLISECOND
FULL_RATE = 0.5
"""Rate of writes that fail while the disk is full. SQLite may have room in its file."""


class SimulatedStore:
    """`SingleNodeStore` of one process: a session on the ensemble of its machine.

    It is no `MemoryStore`, beside which a broker never closes its logs cleanly.
    """

    multi_bytes_max: int | None = None

    def __init__(
        self, ensemble: MemoryEnsemble, disk: Disk, threads: Threads, loop: SimulatedLoop
    ) -> None:
        self._session = MemoryStore(ensemble)
        self._disk = disk
        self._threads = threads
        self._loop = loop
        self._rng = threads.rng
        self._free_us = 0

    def end(self) -> None:
        """The process is dead. Its ephemeral nodes are deleted."""
        session_id = self._session.session_id
        self._session.abandon()
        self._session.ensemble.end_session(session_id)

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def session_id(self) -> int:
        return self._session.session_id

    def subscribe(self, listener: SessionListener) -> None:
        self._session.subscribe(listener)

    async def open(self) -> None:
        await self._session.open()

    async def close(self) -> None:
        await self._session.close()

    async def connected(self) -> None:
        await self._session.connected()

    async def _delay(self) -> None:
        """Wait until the thread of the store has made the next step."""
        delayed = self._loop.create_future()
        scheduler = self._threads.scheduler
        begin_us = max(self._free_us, scheduler.now_us)
        self._free_us = begin_us + self._rng.randrange(DELAY_US_MAX)

        def complete() -> None:
            if not delayed.done():
                delayed.set_result(None)

        scheduler.at(self._free_us, self._threads.when_running, complete)
        await delayed

    async def _call(self, call: Callable[[], Any]) -> Any:
        await self._delay()
        try:
            return await call()
        finally:
            await self._delay()

    async def sync(self) -> None:
        await self._call(self._session.sync)

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        return await self._call(lambda: self._session.get(path, watch))

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        return await self._call(lambda: self._session.exists(path, watch))

    async def change_count(self) -> int:
        return await self._call(self._session.change_count)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._call(lambda: self._session.get_many(paths))

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        return await self._call(lambda: self._session.children(path, watch))

    def _check_space(self) -> None:
        if self._disk.space_left is not None and self._rng.random() < FULL_RATE:
            raise StoreFailure("the disk is full")

    async def _perform(self, operation: Operation) -> Stat | None:
        async def write() -> Stat | None:
            self._check_space()
            return (await self._session.perform([operation]))[0].stat

        return await self._call(write)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        async def write() -> Created:
            self._check_space()
            return await self._session.create(
                path, data, ephemeral=ephemeral, sequential=sequential
            )

        return await self._call(write)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        stat = await self._perform(Set(path, data, version))
        assert stat is not None
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._perform(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[Written]:
        async def write() -> list[Written]:
            self._check_space()
            return await self._session.multi(operations)

        return await self._call(write)
