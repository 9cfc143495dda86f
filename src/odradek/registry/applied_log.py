"""The state as far as the log was applied to it.

The event loop applies records and executes short reads. A thread executes a long read, with a
snapshot of the state. So no read holds back the log.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar

from odradek.registry.schemas_log import LogBatch, LogEntry
from odradek.registry.state import RegistryState

logger = logging.getLogger(__name__)

T = TypeVar("T")

SKIPPED_LINES_MAX = 100
"""Maximum number of log lines about skipped records. Further ones are only counted."""


class AppliedLog:
    """Applies the log to the state. Owned by the event loop.

    Attributes:
        state: The fold over all records below `position`.
        position: The offset of the next record.
        skipped: The number of records that the state could not apply.
        last_skipped: The offset of the last one of them, or -1.
    """

    def __init__(self, state: RegistryState, topic: str) -> None:
        self.state = state
        self.position = 0
        self.skipped = 0
        self.last_skipped = -1
        self._topic = topic
        self._is_ready = asyncio.Event()
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._readers = 0
        self._snapshot: RegistryState | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the log was read to its end once."""
        return self._is_ready.is_set()

    async def ready(self) -> None:
        """Return when the log was read to its end once."""
        await self._is_ready.wait()

    def apply(self, batch: LogBatch) -> None:
        """Apply the next records of the log, and complete the waits for them."""
        for entry in batch.entries:
            reason = self.state.apply(entry.record, entry.offset, entry.timestamp_ms)
            if reason is not None:
                self._skip(entry, reason)
        self.position = batch.position
        if batch.is_end:
            self._is_ready.set()
        while self._waiting and self._waiting[0][0] <= self.position:
            _, _, applied = heapq.heappop(self._waiting)
            if not applied.done():
                applied.set_result(None)

    async def read_in(self, executor: Executor, read: Callable[[RegistryState], T]) -> T:
        """Return the result of a call in a thread, with a snapshot of the current state.

        Args:
            executor: The threads.
            read: A call without effects. It continues if this coroutine is cancelled.
        """
        loop = asyncio.get_running_loop()
        self._readers += 1
        try:
            running = executor.submit(read, self._current_snapshot())
        except BaseException:
            self._end_read()
            raise
        running.add_done_callback(lambda _: _call_soon(loop, self._end_read))
        return await asyncio.wrap_future(running)

    def _current_snapshot(self) -> RegistryState:
        """Return a snapshot, which all reads of one offset share."""
        if self._snapshot is None or self._snapshot.offset != self.state.offset:
            self._snapshot = self.state.snapshot()
        return self._snapshot

    def _end_read(self) -> None:
        self._readers -= 1
        if not self._readers:
            self._snapshot = None
            self.state.drop_snapshots()

    async def reached(self, position: int) -> None:
        """Return when all records below `position` are applied."""
        if self.position >= position:
            return
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (position, next(self._order), applied))
        await applied

    async def wait_applied(self, offset: int) -> None:
        """Return when the record at `offset` is applied."""
        await self.reached(offset + 1)

    def _skip(self, entry: LogEntry, reason: str) -> None:
        """Count and log a record that is skipped. It stays in the topic as it is."""
        self.skipped += 1
        self.last_skipped = entry.offset
        if self.skipped < SKIPPED_LINES_MAX:
            logger.warning(
                "the record at offset %d of topic '%s' is skipped: %s",
                entry.offset,
                self._topic,
                reason,
            )
        elif self.skipped == SKIPPED_LINES_MAX:
            logger.warning(
                "more records of topic '%s' are skipped, from offset %d on without a line each",
                self._topic,
                entry.offset,
            )


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the event loop is closed
        loop.call_soon_threadsafe(call)
