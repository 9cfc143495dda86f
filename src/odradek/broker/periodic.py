"""What a broker does from time to time: retention, checkpoints, flush by age, expiry of producer ids.

The intervals are Kafka's configs. Whether something is due is judged by the injected clock; the loop's
timer only says when to look. Work on files runs in the executor, one task of a kind at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.broker.context import Services

logger = logging.getLogger(__name__)

# Kafka has no config for these: producer.id.expiration.check.interval.ms is internal there.
FLUSH_CHECK_INTERVAL_MS = 1_000
EXPIRATION_CHECK_INTERVAL_MS = 600_000


class PeriodicTasks:
    """The tasks of one broker, started and stopped together."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts them; each waits for its interval before it works for the first time."""
        config = self._services.config
        self._every(config.get_int("log.retention.check.interval.ms"), self.delete_old_segments)
        self._every(config.get_int("log.flush.offset.checkpoint.interval.ms"), self.checkpoint)
        self._every(FLUSH_CHECK_INTERVAL_MS, self.flush_old)
        self._every(EXPIRATION_CHECK_INTERVAL_MS, self.expire_producers)

    def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(_repeat(interval_ms, work)))

    async def stop(self) -> None:
        """Ends the waiting; work that has begun is finished first."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def delete_old_segments(self) -> None:
        """Retention by time and by size."""
        await self._off_loop(self._services.log_manager.delete_old_segments)

    async def checkpoint(self) -> None:
        """Recovery points, log start offsets and high watermarks, for a faster next start."""
        await self._off_loop(self._services.log_manager.checkpoint)

    async def flush_old(self) -> None:
        """Flushes logs that hold unflushed records longer than flush.ms."""
        services = self._services
        now_ms = services.clock.time_ms()
        services.replica_manager.flush_later(services.log_manager.logs_to_flush(now_ms))

    async def expire_producers(self) -> None:
        """Forgets producers that have written nothing for producer.id.expiration.ms."""
        services = self._services
        age_ms = services.config.get_int("producer.id.expiration.ms")
        services.log_manager.expire_producers(services.clock.time_ms() - age_ms)

    async def _off_loop(self, work: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(self._services.executor, work))


async def _repeat(interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
    """Works every `interval_ms`; a failure is logged and does not end it."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await work()
        except Exception:
            logger.exception("%s failed", getattr(work, "__name__", work))
