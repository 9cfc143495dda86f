"""The state as far as the log was applied to it, on the event loop."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging

from odradek.registry.schemas_log import LogBatch, LogEntry
from odradek.registry.state import RegistryState

logger = logging.getLogger(__name__)

SKIPPED_LINES_MAX = 100
"""Maximum number of log lines about skipped records. Further ones are only counted."""


class AppliedLog:
    """Applies the log to the state. Owned by the event loop.

    Attributes:
        state: The fold over all records below `position`.
        position: The offset of the next record.
        skipped: The number of records that the state could not apply.
    """

    def __init__(self, state: RegistryState, topic: str) -> None:
        self.state = state
        self.position = 0
        self.skipped = 0
        self._topic = topic
        self._is_ready = asyncio.Event()
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

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
