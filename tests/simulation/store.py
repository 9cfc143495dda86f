"""The metadata store of one simulated broker: durable, with delays, and full when its disk is full.

The tree belongs to the machine and survives every crash, as SQLite's file does: a write is on the
disk when it returns. A process that dies while it waits for a write does not learn whether the
write happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from odradek.metadata.store.interface import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    Operation,
    Set,
    StoreFailure,
    Watcher,
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
    """`MetadataStore` of one process, on the tree of its machine."""

    def __init__(
        self, tree: MemoryStore, disk: Disk, threads: Threads, loop: SimulatedLoop
    ) -> None:
        self._tree = tree
        self._disk = disk
        self._threads = threads
        self._loop = loop
        self._rng = threads.rng

    async def open(self) -> None:
        await self._tree.open()

    async def close(self) -> None:
        await self._tree.close()

    async def _delay(self) -> None:
        """Wait until the thread of the store has made the next step."""
        delayed = self._loop.create_future()
        delay_us = self._rng.randrange(DELAY_US_MAX)

        def complete() -> None:
            if not delayed.done():
                delayed.set_result(None)

        self._threads.scheduler.after(delay_us, self._threads.when_running, complete)
        await delayed

    async def _call(self, call: Callable[[], Any]) -> Any:
        await self._delay()
        try:
            return await call()
        finally:
            await self._delay()

    async def get(self, path: str, watch: Watcher | None = None) -> Node:
        return await self._call(lambda: self._tree.get(path, watch))

    async def change_count(self) -> int:
        return await self._call(self._tree.change_count)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._call(lambda: self._tree.get_many(paths))

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        return await self._call(lambda: self._tree.children(path, watch))

    async def create(self, path: str, data: bytes = b"") -> None:
        await self.multi([Create(path, data)])

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        await self.multi([Set(path, data, version)])
        return (await self._tree.get(path)).version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> None:
        async def write() -> None:
            if self._disk.space_left is not None and self._rng.random() < FULL_RATE:
                raise StoreFailure("the disk is full")
            await self._tree.multi(operations)

        await self._call(write)
