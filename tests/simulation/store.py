"""The metadata store of one simulated broker: durable, with delays, and full when its disk is full.

The ensemble belongs to the machine and survives every crash, as SQLite's file does: a write is on
the disk when it returns. A process that dies while it waits for a write does not learn whether the
write happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from odradek.metadata.store.ensemble import MemoryEnsemble
from odradek.metadata.store.interface import Operation, Performed, StoreFailure
from odradek.metadata.store.memory import MemoryStore
from tests.simulation.disk import Disk
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.executors import Threads
from tests.simulation.scheduler import MILLISECOND

DELAY_US_MAX = 3 * MILLISECOND
FULL_RATE = 0.5
"""Rate of writes that fail while the disk is full. SQLite may have room in its file."""

Result = TypeVar("Result")


class SimulatedStore(MemoryStore):
    """The store of one process, on the ensemble of its machine."""

    def __init__(
        self, ensemble: MemoryEnsemble, disk: Disk, threads: Threads, loop: SimulatedLoop
    ) -> None:
        super().__init__(ensemble)
        self._disk = disk
        self._threads = threads
        self._process_loop = loop
        self._rng = threads.rng

    async def _delay(self) -> None:
        """Wait until the thread of the store has made the next step."""
        delayed = self._process_loop.create_future()
        delay_us = self._rng.randrange(DELAY_US_MAX)

        def complete() -> None:
            if not delayed.done():
                delayed.set_result(None)

        self._threads.scheduler.after(delay_us, self._threads.when_running, complete)
        await delayed

    async def _request(self, execute: Callable[[], Result], *, is_write: bool = False) -> Result:
        await self._delay()
        try:
            return await super()._request(execute, is_write=is_write)
        finally:
            await self._delay()

    async def perform(self, operations: Sequence[Operation]) -> list[Performed]:
        if self._disk.space_left is not None and self._rng.random() < FULL_RATE:
            await self._delay()
            raise StoreFailure("the disk is full")
        return await super().perform(operations)
