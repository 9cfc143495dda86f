"""What a broker does from time to time: retention, checkpoints, flush by age, expiry of producer
ids.

The intervals are Kafka's configs. Whether something is due is judged by the injected clock; the
loop's timer only says when to look. Work on files runs in the executor, one task of a kind at a
time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.broker.context import Services

logger = logging.getLogger(__name__)

# How often the disk's upkeep is looked after: flush.ms, checkpoints and removals become due by it.
MAINTENANCE_INTERVAL_MS = 1_000


class PeriodicTasks:
    """The tasks of one broker, started and stopped together."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts them; each waits for its interval before it works for the first time."""
        config = self._services.config
        self._every(config.get_int("log.retention.check.interval.ms"), self.delete_old_segments)
        self._every(MAINTENANCE_INTERVAL_MS, self.maintain)

    def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(_repeat(interval_ms, work)))

    async def stop(self) -> None:
        """Ends the waiting; work that has begun is finished first."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def delete_old_segments(self) -> None:
        """Retention by time and by size, and expiry of producers; the logs belong to the loop."""
        services = self._services
        services.log_manager.retain(services.clock.time_ms())

    async def maintain(self) -> None:
        """Flushes by age, checkpoints and removals: what waits for the disk."""
        services = self._services
        loop = asyncio.get_running_loop()
        now_ms = services.clock.time_ms()
        work = loop.run_in_executor(services.executor, services.log_manager.maintain, now_ms)
        await asyncio.shield(work)


async def _repeat(interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
    """Works every `interval_ms`; a failure is logged and does not end it."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await work()
        except Exception:
            logger.exception("%s failed", getattr(work, "__name__", work))
